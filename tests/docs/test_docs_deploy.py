"""Manifests, compose file and Backend.AI recipe: structure, and the files they hand to loadgen."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from doc_pages import ROOT

from loadgen.replay.options import read_workload, resolve
from loadgen.report.slo import read_slo

DEPLOY = ROOT / "deploy"
K8S = DEPLOY / "k8s"


def documents(path: Path) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def kustomization() -> dict[str, Any]:
    (found,) = documents(K8S / "kustomization.yaml")
    return found


def pods() -> list[tuple[str, dict[str, Any]]]:
    everything = [document for name in kustomization()["resources"] for document in documents(K8S / name)]
    return [
        (d["metadata"]["name"], d["spec"]["template"]["spec"])
        for d in everything
        if "template" in d.get("spec", {})
    ]


def test_the_kustomization_names_files_that_exist() -> None:
    found = kustomization()
    names = [
        *found["resources"],
        *(file for maker in found["configMapGenerator"] for file in maker.get("files", [])),
    ]
    assert [name for name in names if not (K8S / name).is_file()] == []


@pytest.mark.parametrize(("name", "pod"), pods(), ids=[name for name, _ in pods()])
def test_pods_pass_the_restricted_standard_on_a_read_only_root(name: str, pod: dict[str, Any]) -> None:
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
    volumes = {volume["name"] for volume in pod["volumes"]}
    made = {maker["name"] for maker in kustomization()["configMapGenerator"]}
    for container in pod["containers"]:
        context = container["securityContext"]
        assert (context["readOnlyRootFilesystem"], context["allowPrivilegeEscalation"]) == (True, False)
        assert context["capabilities"]["drop"] == ["ALL"]
        mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
        assert {"/runs", "/cache", "/tmp"} <= mounts.keys(), "the image writes there and nowhere else"
        assert set(mounts.values()) <= volumes
        assert "cpu" in container["resources"]["requests"]
        for source in container["envFrom"]:
            assert "configMapRef" not in source or source["configMapRef"]["name"] in made
    assert {v["configMap"]["name"] for v in pod["volumes"] if "configMap" in v} <= made


def test_workers_find_the_master_and_the_gate_finds_the_run() -> None:
    by_name = dict(pods())
    (service,) = [d for d in documents(K8S / "master.yaml") if d["kind"] == "Service"]
    assert service["metadata"]["name"] in by_name["loadgen-worker"]["containers"][0]["args"]
    assert {port["port"] for port in service["spec"]["ports"]} >= {5557, 9646}
    master = by_name["loadgen-master"]["containers"][0]["args"][0]
    gate = by_name["loadgen-gate"]["containers"][0]["args"][0]
    assert '--run-dir "/runs/$RUN"' in master
    assert '"/runs/$RUN"' in gate
    literals = {
        line.partition("=")[0]
        for maker in kustomization()["configMapGenerator"]
        for line in maker.get("literals", [])
    }
    assert set(re.findall(r"\$(\w+)", master + gate)) <= literals


def test_workload_and_slos_of_the_cluster_are_valid() -> None:
    resolve({}, read_workload(K8S / "workload.toml"))
    assert read_slo(K8S / "slo.toml").slo


def test_compose_services_are_unprivileged_and_share_what_they_must() -> None:
    (compose,) = documents(DEPLOY / "compose.yaml")
    assert set(compose["services"]) == {"sim", "master", "worker"}
    for service in compose["services"].values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["volumes"] == ["runs:/runs", "cache:/cache"]


@pytest.mark.parametrize(
    ("file", "key"), [("lmcache-0.4.3.yaml", "cufile_buffer_size"), ("lmcache-0.4.4.yaml", "gds_buffer_size")]
)
def test_the_recipe_uses_the_name_of_its_version(file: str, key: str) -> None:
    (config,) = documents(DEPLOY / "backend-ai" / file)
    assert key in config
    assert len({"cufile_buffer_size", "gds_buffer_size"} & config.keys()) == 1
    assert config["local_cpu"] is False, "or main memory answers instead of the storage"


def test_the_model_definition_asks_for_what_loadgen_needs() -> None:
    (definition,) = documents(DEPLOY / "backend-ai" / "model-definition.yaml")
    (model,) = definition["models"]
    command = model["service"]["start_command"]
    assert "--enable-prompt-tokens-details" in command
    assert any(word.startswith("--kv-transfer-config=") for word in command)
    assert str(model["service"]["port"]) == "8000"
