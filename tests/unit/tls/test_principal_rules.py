"""ssl.principal.mapping.rules, with the examples of Kafka's documentation."""

from __future__ import annotations

import time

import pytest

from tidelog.tls.principal_rules import InvalidRules, PrincipalRules

KAFKA_EXAMPLE = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,"
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,"
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L, DEFAULT"
)


@pytest.mark.parametrize(
    ("rules", "subject", "name"),
    [
        (
            KAFKA_EXAMPLE,
            "CN=serviceuser,OU=ServiceUsers,O=Unknown,L=Unknown,ST=Unknown,C=Unknown",
            "serviceuser",
        ),
        (
            KAFKA_EXAMPLE,
            "CN=adminUser,OU=Admin,O=Unknown,L=Unknown,ST=Unknown,C=Unknown",
            "adminuser@admin",
        ),
        (KAFKA_EXAMPLE, "O=Acme,CN=Some.One,L=x", "some.one"),
        (KAFKA_EXAMPLE, "O=Acme", "O=Acme"),
        ("DEFAULT", "CN=a,OU=b", "CN=a,OU=b"),
        ("RULE:^CN=(.*)$/$1/U", "CN=abc", "ABC"),
        ("RULE:^CN=(.*)$/$1-$2/", "CN=x", "x-$2"),
        ("RULE:^CN=(.*)$/$12/", "CN=x", "x2"),
        (r"RULE:^CN=(.*)$/\$$1/", "CN=x", "$x"),
        ("RULE:^CN=(?<who>[^,]+).*$/${who}/", "CN=bob,OU=x", "bob"),
        (r"RULE:^CN=([^,]*)\/x$/$1/", "CN=a/x", "a"),
        ("RULE:^CN=z$/z/,DEFAULT", "CN=y", "CN=y"),
    ],
)
def test_the_first_rule_that_applies_gives_the_name(rules: str, subject: str, name: str) -> None:
    assert PrincipalRules(rules).name_of(subject) == name


def test_a_subject_that_no_rule_applies_to_has_no_name() -> None:
    with pytest.raises(
        ValueError, match=r"no rule of ssl\.principal\.mapping\.rules applies to CN"
    ):
        PrincipalRules("RULE:^OU=.*$/x/").name_of("CN=a")


@pytest.mark.parametrize(
    ("rules", "complaint"),
    [
        ("RULE:^CN=(.*$/$1/", "cannot be read"),
        ("DEFAULT,nonsense", "'nonsense' is not DEFAULT or RULE"),
        ("RULE:^CN=(.*)$/${who}/", "names a group that is not there"),
        ("RULE:(a+)+b/$1/", "could take for ever"),
        ("RULE:((x*)y){2,}/$1/", "could take for ever"),
        ("RULE:(a|aa)*b/$1/", "could take for ever"),
    ],
)
def test_rules_that_cannot_be_used_are_refused(rules: str, complaint: str) -> None:
    with pytest.raises(InvalidRules, match=complaint):
        PrincipalRules(rules)


def test_a_repetition_of_a_plain_group_is_fine() -> None:
    assert PrincipalRules("RULE:^CN=(?:ab)+([^,]*)$/$1/").name_of("CN=ababx") == "x"
    assert PrincipalRules("RULE:^CN=[(+]*([a-z]+)$/$1/").name_of("CN=(+x") == "x"


def test_a_long_subject_takes_no_long_time() -> None:
    rules = PrincipalRules(KAFKA_EXAMPLE.removesuffix(", DEFAULT"))
    began = time.process_time()
    rules.name_of("CN=" + "a," * 1000)
    assert time.process_time() - began < 2
    with pytest.raises(ValueError, match="more than 2048"):
        rules.name_of("CN=" + "a" * 3000)
