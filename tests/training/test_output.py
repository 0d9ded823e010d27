"""The output folder: it belongs to one training."""

from pathlib import Path

import pytest

from assay.errors import ConfigError, TrainingError
from assay.training.output import Output
from assay.training.session import TrainingSession
from training.lamps import trained


def test_an_empty_folder_can_begin_one_but_not_go_on(tmp_path: Path) -> None:
    Output(tmp_path / "new").check(resume=False)

    with pytest.raises(ConfigError, match="no training here to go on with"):
        Output(tmp_path / "new").check(resume=True)


def test_a_place_where_nothing_can_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(ConfigError, match="cannot be written"):
        Output(tmp_path / "file").check(resume=False)


def test_a_folder_whose_training_cannot_be_read_says_so(tmp_path: Path) -> None:
    trained(tmp_path, num_steps=1)
    (tmp_path / "out" / "training.json").write_text("{}")
    session = TrainingSession(store=tmp_path / "store.db", resume=True)

    with pytest.raises(TrainingError, match=r"training\.json: cannot be read"):
        trained(tmp_path, num_steps=2, session=session)
