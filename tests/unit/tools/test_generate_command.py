"""`tidelog generate`: what it prints can be read by the programs it is for."""

from __future__ import annotations

import json

import pytest

from tidelog.tools.cli.main import main
from tidelog.tools.monitoring import COLUMNS


def test_the_dashboard_is_json_whose_panels_do_not_overlap(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["generate", "grafana"]) == 0
    panels = json.loads(capsys.readouterr().out)["panels"]
    cells = [
        (x, y)
        for panel in panels
        for place in [panel["gridPos"]]
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < COLUMNS
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_the_scrape_configuration_names_the_brokers(capsys: pytest.CaptureFixture[str]) -> None:
    yaml = pytest.importorskip("yaml")
    assert main(["generate", "prometheus", "b1:9308", "b2:9308", "--interval", "5"]) == 0
    (job,) = yaml.safe_load(capsys.readouterr().out)["scrape_configs"]
    assert job["static_configs"] == [{"targets": ["b1:9308", "b2:9308"]}]
    assert (job["scrape_interval"], job["metrics_path"]) == ("5s", "/metrics")


def test_the_rules_rename_labels_and_name_the_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    yaml = pytest.importorskip("yaml")
    assert main(["generate", "rules", "--cluster", 'north "1"']) == 0
    (group,) = yaml.safe_load(capsys.readouterr().out)["groups"]
    rules = {rule["record"]: rule for rule in group["rules"]}
    assert len(rules) == len(group["rules"])
    assert rules["jvm_memory_used_bytes"]["expr"] == "process_resident_memory_bytes"
    assert rules["kafka_consumergroup_group_max_lag"] == {
        "record": "kafka_consumergroup_group_max_lag",
        "expr": 'max by (group) (label_replace(kafka_consumergroup_lag, "group", "$1",'
        ' "consumergroup", "(.*)"))',
        "labels": {"cluster_name": 'north "1"'},
    }
