"""scripts/check_exactness.py on the committed golden, and on goldens that were changed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import check_exactness
import numpy as np
import pytest
from enginetool import find_engine
from nativetool import native

DATA = Path(__file__).resolve().parents[1] / "data" / "tiny"


def test_the_engine_is_exact_on_tiny(capsys: pytest.CaptureFixture[str]) -> None:
    isas = native().usable_isas()
    words = [word for isa in isas for word in ("--isa", isa)]
    assert check_exactness.main([str(DATA), *words, "--engine", str(find_engine()), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["schema"] == check_exactness.SCHEMA
    assert answer["held"] is True
    rows = {(row["path"], row["what"], row["isa"]): row for row in answer["rows"]}
    assert len(rows) == 21 * len(isas)
    assert all(row["count"] > 0 for row in rows.values())
    for isa in isas:
        logits = rows["prefill f32 vs transformers", "logits", isa]
        assert logits["value"] > 0, "two programs never agree in all bits"


@pytest.mark.parametrize(
    ("array", "row"),
    [
        ("p08.logits", "logits"),
        ("p08.mtp_logits", "draft logits (MTP)"),
        ("p08.l2.topk_idx", "experts that differ"),
        ("p08.l1.gdn_state", "delta states"),
        ("p08.l0.conv_state", "conv inputs"),
        ("p03.gen_tokens", "greedy tokens that differ"),
    ],
)
def test_a_changed_golden_is_found(array: str, row: str, tmp_path: Path) -> None:
    native()
    folder = tmp_path / "tiny"
    shutil.copytree(DATA, folder)
    arrays = dict(np.load(DATA / "golden.npz"))
    value = arrays[array].copy()
    value.flat[value.size // 2] += 1 if value.dtype.kind == "i" else 0.01
    np.savez(folder / "golden.npz", **{**arrays, array: value})
    checker = check_exactness.Checker(check_exactness.Golden(folder), None, 1, native().usable_isas()[0])
    found = [*checker.against_transformers(), *checker.states(), *checker.greedy()]
    out = {item.what for item in found if not item.held}
    assert row in out
    assert out <= {row, "logits"}  # decoding goes on from the tokens that the engine chose


def test_what_is_no_golden_is_one_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    native()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(check_exactness, "delta_rule", lambda _: [])
        assert check_exactness.main([str(tmp_path)]) == 2
    assert "this is no golden folder" in capsys.readouterr().err
    assert not check_exactness.Row("p", "i", "a", "b", 1, float("nan"), 1.0).held
