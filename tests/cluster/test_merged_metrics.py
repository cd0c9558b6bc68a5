"""Metrics of several replicas as one text: what Prometheus's own parser reads in it."""

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from transept.cluster.merged_metrics import merged_metrics

NAMES = ("tiny.en", 'odd "name\\')


def of_a_replica(model: str, number: int) -> str:
    registry = CollectorRegistry()
    Gauge("process_threads", "Threads", registry=registry).set(number)
    Counter("refused", "Refusals", ["reason"], registry=registry).labels("none").inc(number + 1)
    Gauge("ready", "Ready", ["model"], registry=registry).labels(model).set(1)
    return generate_latest(registry).decode()


def test_each_sample_has_its_model() -> None:
    text = merged_metrics({name: of_a_replica(name, number) for number, name in enumerate(NAMES)})
    families = {family.name: family.samples for family in text_string_to_metric_families(text)}
    for name, expected in (("process_threads", [0, 1]), ("refused", [1, 2]), ("ready", [1, 1])):
        samples = [sample for sample in families[name] if not sample.name.endswith("_created")]
        assert [sample.labels["model"] for sample in samples] == list(NAMES)
        assert [sample.value for sample in samples] == expected
    assert text.count("# TYPE refused_total counter") == 1
