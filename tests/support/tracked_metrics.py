"""Reports three steps to one tracker, interrupted and resumed, and prints what the tracker has.

python tests/support/tracked_metrics.py TRACKER FOLDER
"""

import json
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from assay.train.metric_sinks import MetricReport, TrackedTraining
from assay.train.output_folder import OutputFolder, TrainingStep

TRAINING = "grpo-20260101-000000-abcd"


class Step(TrainingStep):
    reward: float | None
    failed: dict[str, int]


def report_steps(tracker: str, folder: Path) -> None:
    """The second turn repeats a step, as a resumed training does."""
    steps = [Step(step=each, reward=each / 4, failed={"agent": each}) for each in (1, 2, 3)]
    for done, rest in (([], steps[:2]), (steps[:1], steps[1:])):
        training = TrackedTraining(TRAINING, "lamps", folder, {"learning_rate": 0.1})
        report = MetricReport([tracker], training, OutputFolder(folder))
        report.catch_up(done, [])
        for step in rest:
            report.report("train", step)
        report.report("eval", Step(step=rest[-1].step, reward=1.0, failed={}))
        report.close()


def read_wandb(folder: Path) -> Iterator[tuple[int, dict[str, float]]]:
    import wandb
    from wandb.proto.wandb_internal_pb2 import Record

    # Its service writes the last lines when it ends.
    wandb.teardown()
    for file in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        for entry in read_log_records(file.read_bytes()):
            record = Record()
            record.ParseFromString(entry)
            if record.HasField("history"):
                items = record.history.item
                found = {"/".join(each.nested_key) or each.key: each.value_json for each in items}
                values = {name: float(text) for name, text in found.items() if name[0] != "_"}
                yield record.history.step.num, values


def read_log_records(data: bytes) -> Iterator[bytes]:
    """The records of a LevelDB log after W&B's header of seven bytes."""
    place, whole = 7, b""
    while place + 7 <= len(data):
        if 32768 - place % 32768 < 7:
            place += 32768 - place % 32768
            continue
        _, length, kind = struct.unpack("<IHB", data[place : place + 7])
        whole += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):
            yield whole
            whole = b""


def read_mlflow(folder: Path) -> Iterator[tuple[int, dict[str, float]]]:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{folder / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("lamps")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.data.params == {"learning_rate": "0.1"}
    assert run.info.status == "FINISHED"
    for name in run.data.metrics:
        for each in client.get_metric_history(run.info.run_id, name):
            yield each.step, {name: each.value}


def read_trackio(folder: Path) -> Iterator[tuple[int, dict[str, float]]]:
    from trackio.sqlite_storage import SQLiteStorage

    for row in SQLiteStorage.get_logs("lamps", TRAINING):
        step = row.pop("step")
        row.pop("timestamp")
        yield step, row


def main(tracker: str, folder: Path) -> None:
    report_steps(tracker, folder)
    read: Any = {"wandb": read_wandb, "mlflow": read_mlflow, "trackio": read_trackio}[tracker]
    entries = [
        [step, name, value] for step, values in read(folder) for name, value in values.items()
    ]
    print(json.dumps(sorted(entries)))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]).absolute())
