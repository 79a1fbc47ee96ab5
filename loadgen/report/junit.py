"""A verdict as JUnit XML: one test case a check; invalid is an error, inconclusive is skipped (never passed)."""

from __future__ import annotations

from pathlib import Path

from loadgen.outfile import write_file
from loadgen.report.gate import Verdict
from loadgen.report.words import printable


def write_junit(path: Path, verdict: Verdict) -> None:
    """Write the file, whole or not at all."""
    from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

    suite = TestSuite("loadgen gate")
    for check in verdict.checks:
        case = TestCase(printable(check.name), classname=f"loadgen.{printable(check.run or 'comparison')}")
        if check.outcome == "fail":
            case.result = [Failure(printable(check.sentence))]
        elif check.outcome == "invalid":
            case.result = [Error(printable(check.sentence))]
        elif check.outcome == "inconclusive":
            case.result = [Skipped(printable(check.sentence))]
        suite.add_testcase(case)
    document = JUnitXml()
    document.add_testsuite(suite)
    xml: bytes = document.tostring()  # type: ignore[no-untyped-call]
    write_file(path, f'<?xml version="1.0" encoding="utf-8"?>\n{xml.decode("utf-8")}\n')
