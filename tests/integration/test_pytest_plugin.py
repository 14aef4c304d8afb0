"""The fixtures that tidelog gives to other people's tests."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.integration

PLUGIN = ("-p", "no:cacheprovider")


def test_topics_are_fresh_and_the_broker_is_shared(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        addresses = set()

        @pytest.mark.parametrize("n", [1, 2])
        def test_a_topic(tidelog, n):
            addresses.add(tidelog.bootstrap_servers)
            topic = tidelog.topic("orders")
            topic.expect().count(0)
            topic.send("x")
            tidelog.fail("Produce", "UNKNOWN_SERVER_ERROR", times=None)

        def test_they_shared(tidelog, kafka_server):
            assert addresses == {kafka_server}
            tidelog.topic().send("no fault is left")
        """
    )
    pytester.runpytest_subprocess(*PLUGIN).assert_outcomes(passed=3)


def test_fixtures_of_a_session_get_the_broker_that_the_tests_share(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.fixture(scope="session")
        def orders(tidelog_session):
            topic = tidelog_session.create_topic("orders")
            topic.send("made once")
            return topic

        @pytest.fixture(scope="module")
        def address(tidelog_session):
            return tidelog_session.bootstrap_servers

        @pytest.mark.parametrize("n", [1, 2])
        def test_it_is_the_same(orders, address, tidelog, kafka_server, n):
            assert address == kafka_server == tidelog.bootstrap_servers
            tidelog.expect("orders").count(1)

        @pytest.mark.tidelog(num_partitions=7)
        def test_a_marked_test_has_its_own_beside_it(orders, address, kafka_server):
            assert address != kafka_server
            orders.expect().count(1)
        """
    )
    pytester.runpytest_subprocess(*PLUGIN).assert_outcomes(passed=3)


def test_a_broker_of_its_own_by_fixture_and_by_marker(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\ntidelog_config =\n    num.partitions=4\n    message.max.bytes=5000")
    pytester.makepyfile(
        """
        import pytest
        from tidelog.client import Admin, ConfigResource, ConfigResourceType

        def setting(broker, key):
            with Admin({"bootstrap.servers": broker.bootstrap_servers}) as admin:
                resource = ConfigResource(ConfigResourceType.BROKER, "0")
                return admin.describe_configs([resource])[resource].get()[key].value

        def test_own(tidelog, tidelog_broker):
            assert tidelog.bootstrap_servers != tidelog_broker.bootstrap_servers
            assert setting(tidelog_broker, "num.partitions") == "4"

        @pytest.mark.tidelog(num_partitions=7)
        def test_marked(tidelog, kafka_server):
            assert setting(tidelog, "num.partitions") == "7"
            assert setting(tidelog, "message.max.bytes") == "5000"
            assert kafka_server == tidelog.bootstrap_servers
        """
    )
    pytester.runpytest_subprocess(*PLUGIN).assert_outcomes(passed=2)


def test_a_killed_broker_is_there_again_for_the_next_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_kills(tidelog):
            tidelog.kill()

        def test_goes_on(tidelog):
            tidelog.topic().send("x")
        """
    )
    pytester.runpytest_subprocess(*PLUGIN).assert_outcomes(passed=2)


def test_logs_are_shown_with_a_failure_only(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_passes(tidelog):
            tidelog.topic("quiet")

        def test_fails(tidelog):
            tidelog.broker.restart()
            assert False
        """
    )
    result = pytester.runpytest_subprocess(*PLUGIN)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*log of tidelog at 127.0.0.1:*", "*stopped*"])


def test_brokers_of_test_processes_do_not_meet(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\ntidelog_in_process = true")
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("n", range(8))
        def test_one(tidelog, n):
            topic = tidelog.topic("same")
            topic.send(str(n))
            topic.expect().exactly_once(values=[n])
        """
    )
    result = pytester.runpytest_subprocess(*PLUGIN, "-n", "2")
    result.assert_outcomes(passed=8)


def test_a_setting_without_a_value_is_a_usage_error(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\ntidelog_config = num.partitions")
    pytester.makepyfile("def test_it(tidelog): pass")
    result = pytester.runpytest_subprocess(*PLUGIN)
    result.stdout.fnmatch_lines(["*tidelog_config: not KEY=VALUE: num.partitions*"])


def test_markers_of_a_test_its_class_and_its_module_come_together(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(
        """
        import pytest
        from tidelog.client import Admin, ConfigResource, ConfigResourceType

        pytestmark = pytest.mark.tidelog(num_partitions=3, message_max_bytes=4000)

        @pytest.mark.tidelog(message_max_bytes=2000)
        @pytest.mark.tidelog(**{"listener.name.inside_net.max.connections": 77},
                             listeners="INSIDE_NET://127.0.0.1:0",
                             listener_security_protocol_map="INSIDE_NET:PLAINTEXT")
        @pytest.mark.tidelog(inter_broker_listener_name="INSIDE_NET")
        def test_all(tidelog):
            assert list(tidelog.listeners) == ["INSIDE_NET"]
            with Admin({"bootstrap.servers": tidelog.bootstrap_servers}) as admin:
                resource = ConfigResource(ConfigResourceType.BROKER, "0")
                found = admin.describe_configs([resource])[resource].get()
            assert found["num.partitions"].value == "3"
            assert found["message.max.bytes"].value == "2000"
            assert found["listener.name.inside_net.max.connections"].value == "77"

        @pytest.mark.tidelog({"num.partitions": 3})
        def test_no_keyword(tidelog):
            pass
        """
    )
    result = pytester.runpytest_subprocess(*PLUGIN)
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*takes keywords, not {'num.partitions': 3}*"])


def test_the_name_of_a_test_may_have_letters_that_no_topic_has(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_größe(tidelog): tidelog.topic().send('x')")
    pytester.runpytest_subprocess(*PLUGIN).assert_outcomes(passed=1)


def test_a_broker_left_paused_goes_on_for_the_next_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_pauses(tidelog):
            tidelog.pause()
            raise RuntimeError("before it could resume")

        def test_goes_on(tidelog):
            tidelog.topic().send("x")
        """
    )
    result = pytester.runpytest_subprocess(*PLUGIN, timeout=120)
    result.assert_outcomes(passed=1, failed=1)
