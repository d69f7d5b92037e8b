"""The JSON report: a stable interface, described field by field in docs/report.md."""

import math
from dataclasses import asdict
from typing import Any

import msgspec

from ddltop.collector.snapshot import NodeLine, RankLine, Snapshot
from ddltop.model.assessment import Assessment, PhaseMeans, RankFigures

SCHEMA_VERSION = 1


def to_json(snapshot: Snapshot) -> str:
    """Write the report of a snapshot as indented JSON; what is not measured is null."""
    return msgspec.json.format(msgspec.json.encode(report(snapshot)), indent=2).decode()


def report(snapshot: Snapshot) -> dict[str, Any]:
    """Make the report of a snapshot out of plain values; seconds, bytes, bytes per second, ratios."""
    assessment = snapshot.assessment
    content = {
        "schema_version": SCHEMA_VERSION,
        "run": _run(snapshot),
        "phases_s": _phases(snapshot, assessment),
        "speedup": asdict(assessment.speedup) if assessment else None,
        "gap_s": [asdict(part) for part in assessment.gap] if assessment else [],
        "buckets": [asdict(bucket) for bucket in assessment.buckets] if assessment else [],
        "collectives": [asdict(sums) for sums in assessment.collectives] if assessment else [],
        "nodes": [_node(line) for line in snapshot.nodes],
        "findings": [_finding(finding) for finding in map(asdict, snapshot.findings)],
        "quality": {**asdict(snapshot.quality), "clock_offset_s": None},
    }
    finite: dict[str, Any] = _finite(content)
    return finite


def _run(snapshot: Snapshot) -> dict[str, Any]:
    run, assessment = snapshot.run, snapshot.assessment
    return {
        "id": run.run_id,
        "state": snapshot.state.value,
        "command": list(run.command),
        "framework": run.framework,
        "strategy": run.strategy,
        "backend": run.backend,
        "device": run.device,
        "model": run.model,
        "world_size": run.world_size,
        "num_nodes": run.num_nodes,
        "steps": snapshot.num_steps,
        "first_step_assessed": assessment.first_step if assessment else None,
        "steps_assessed": assessment.num_steps if assessment else None,
        "steps_detailed": assessment.num_detailed if assessment else None,
        "duration_s": snapshot.duration_s,
        "samples_per_s": assessment.samples_per_s if assessment else None,
        "batch_per_rank": assessment.batch_per_rank if assessment else None,
        "tokens_per_s": assessment.tokens_per_s if assessment else None,
        "evaluation_share": assessment.evaluation_share if assessment else None,
        "skipped_share": assessment.skipped_share if assessment else None,
        "device_waited_share": assessment.device_waited_share if assessment else None,
        "gradient_bytes": run.gradient_bytes,
        "bucket_timing": run.bucket_timing,
        "exit_code": run.exit_code,
        "unmeasured": run.unmeasured,
        "notes": run.notes,
    }


def _phases(snapshot: Snapshot, assessment: Assessment | None) -> dict[str, Any] | None:
    if assessment is None:
        return None
    lines = {line.rank: line for line in snapshot.ranks}
    return {
        **_means(assessment.phases),
        "typical_rank": _means(assessment.typical),
        "per_rank": [_rank(figures, lines.get(figures.rank)) for figures in assessment.ranks],
    }


def _means(means: PhaseMeans) -> dict[str, Any]:
    return asdict(means)


def _rank(figures: RankFigures, line: RankLine | None) -> dict[str, Any]:
    return {
        "rank": figures.rank,
        "node": line.node if line else None,
        "state": line.state.value if line else None,
        **_means(figures.phases),
        "lateness": figures.lateness_s,
        "last_share": figures.last_share,
        "samples_per_s": figures.samples_per_s,
    }


def _node(line: NodeLine) -> dict[str, Any]:
    sample = line.sample
    return {
        "node": line.node,
        "gpus": msgspec.to_builtins(sample.gpus) if sample else [],
        "gpu_status": sample.gpu_status if sample else None,
        "nics": msgspec.to_builtins(sample.nics) if sample else [],
        "host": msgspec.to_builtins(sample.host, str_keys=True) if sample else None,
    }


def _finding(fields: dict[str, Any]) -> dict[str, Any]:
    return {("active" if key == "is_active" else key): value for key, value in fields.items()}


def _finite(value: Any) -> Any:
    """Replace NaN and infinity, which JSON cannot say, by None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
