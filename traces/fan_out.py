"""Makes fan-out.jsonl.zst: two sessions that each spawn three sub-agents and wait for them. An example of writing a trace.

python fan_out.py REPOSITORY
"""

import sys
from pathlib import Path

from loadgen import tokens
from loadgen.corpus.material import Material
from loadgen.trace.model import Gap, Header, Parent, Session, Source, Turn
from loadgen.trace.writer import TraceWriter

SYSTEM = "You are a coding agent. Read before you write, say what you did, and stop when the task is done."
TURNS, CHILD_TURNS, CHILDREN, SPAWNED_BY = 5, 3, 3, 1
tokenizer = tokens.get("tekken")
material = Material(sys.argv[1], tokenizer)


def turns(writer: TraceWriter, session: str, number: int, count: int, first_tokens: int) -> None:
    """Turns of a session, with texts of the material's session `number`."""
    total = tokenizer.count(SYSTEM)
    for index in range(count):
        new = first_tokens if index == 0 else 400
        total += new + (100 if index else 0)
        gap = None if index == 0 and number < 10 else Gap(kind="tool", s=1.5)
        writer.turn(
            Turn(
                session=session,
                index=index,
                append=[{"role": "user", "content": material.text(number, 2 * index, new)}],
                answer={"role": "assistant", "content": material.text(number, 2 * index + 1, 100)},
                gap=gap,
                content_tokens=total,
                output_tokens=100,
            )
        )
    writer.end(session)


header = Header(
    version=1,
    name="fan-out",
    fidelity="messages",
    tokenizer=tokenizer.name,
    source=Source(format="synthetic", licence="Apache-2.0"),
)
with TraceWriter(Path(__file__).with_name("fan-out.jsonl.zst"), header) as writer:
    system = writer.json_blob(SYSTEM)
    for number in range(2):
        writer.session(Session(id=f"main-{number}", system=system))
        turns(writer, f"main-{number}", number, TURNS, 6000)
        for child in range(CHILDREN):
            name = f"main-{number}.{child}"
            parent = Parent(session=f"main-{number}", turn=SPAWNED_BY, wait=True)
            writer.session(Session(id=name, parent=parent, agent="explore", system=system))
            turns(writer, name, 10 + 3 * number + child, CHILD_TURNS, 3000)
