from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.config.jaas import MODULES
from tidelog.spark.options import InvalidOption, sink_options, source_options
from tidelog.spark.references import MissingReference, resolved

GIVEN = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "orders"}


def test_variables_and_files_take_the_place_of_their_references(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_USER", "anna")
    (tmp_path / "word").write_text("mellon\n")
    text = f"user=${{env:SHOP_USER}} word=${{file:{tmp_path / 'word'}}}"
    assert resolved(text) == "user=anna word=mellon"


def test_a_dollar_that_begins_no_reference_stays() -> None:
    assert resolved("$5 ${amount} ${spark.x:y} ${other:thing}") == (
        "$5 ${amount} ${spark.x:y} ${other:thing}"
    )


def test_a_reference_to_nothing_is_an_error_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SHOP_USER", raising=False)
    with pytest.raises(MissingReference, match="no variable SHOP_USER"):
        resolved("${env:SHOP_USER}")
    with pytest.raises(MissingReference, match="No such file"):
        resolved(f"${{file:{tmp_path / 'word'}}}")


def test_options_keep_references_and_clients_get_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_CLIENT", "mellon")
    source = source_options({**GIVEN, "kafka.client.id": "${env:SHOP_CLIENT}"})
    assert source.client["client.id"] == "${env:SHOP_CLIENT}"
    assert source.driver_config().text("client.id") == "mellon"
    assert source.executor_config().text("client.id") == "mellon"
    sink = sink_options(
        {
            "kafka.bootstrap.servers": "127.0.0.1:9092",
            "topic": "orders",
            "kafka.client.id": "${env:SHOP_CLIENT}",
        }
    )
    assert sink.client["client.id"] == "${env:SHOP_CLIENT}"
    assert sink.producer_options()["client.id"] == "mellon"


def exactly_once(**more: str) -> dict[str, str]:
    given = {"topic": "orders", "deliveryGuarantee": "exactly-once", **more}
    return {"kafka.bootstrap.servers": "127.0.0.1:9092", **given}


def test_an_exactly_once_sink_takes_its_login_from_a_reference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    login = f'{MODULES["PLAIN"]} required username="alice" password="mellon";'
    monkeypatch.setenv("SHOP_LOGIN", login)
    secured = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN"}
    given = exactly_once(**secured, **{"kafka.sasl.jaas.config": "${env:SHOP_LOGIN}"})
    assert sink_options(given).producer_options()["sasl.jaas.config"] == login


def test_what_does_not_go_with_exactly_once_is_refused_by_its_reference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SHOP_ACKS", "1")
    with pytest.raises(InvalidOption, match=r"kafka\.acks: \$\{env:SHOP_ACKS\} does not go with"):
        sink_options(exactly_once(**{"kafka.acks": "${env:SHOP_ACKS}"}))


@pytest.mark.parametrize("key", ["kafka.isolation.level", "kafka.fetch.min.bytes"])
def test_a_bad_value_behind_a_reference_is_refused_without_showing_it(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_SECRET", "mellon")
    with pytest.raises(InvalidOption) as caught:
        source_options({**GIVEN, key: "${env:SHOP_SECRET}"})
    assert "${env:SHOP_SECRET}" in str(caught.value)
    assert key in str(caught.value)
    shown: BaseException | None = caught.value
    while shown is not None:
        assert "mellon" not in str(shown)
        shown = None if shown.__suppress_context__ else shown.__context__


def test_a_missing_reference_of_an_option_names_the_option(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SHOP_SECRET", raising=False)
    with pytest.raises(InvalidOption, match=r"kafka\.client\.id.*no variable SHOP_SECRET"):
        source_options({**GIVEN, "kafka.client.id": "${env:SHOP_SECRET}"})
