"""aimabuild._native: models and sessions. Values are held against transformers by test_check_exactness."""

from __future__ import annotations

import gc
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aimabuild.base.errors import AimaError, UsageError

IDS = np.random.default_rng(1).integers(0, 512, 150).astype(np.int32)


@pytest.fixture(scope="module")
def model(module: Any, folder: Path) -> Any:
    return module.Model(folder, math="f32", threads=1)


def test_a_model_says_what_it_is(model: Any) -> None:
    assert model.layers == ["linear_attention"] * 3 + ["full_attention"]
    assert (model.vocab, model.hidden, model.experts, model.experts_per_token) == (512, 64, 8, 2)
    assert model.math == "f32"
    assert model.has_draft_head is True
    assert model.tokenizer is None
    assert model.device


def test_prefill_gives_arrays_that_outlive_everything(
    module: Any, folder: Path, golden: dict[str, np.ndarray]
) -> None:
    own = module.Model(folder, math="f32", threads=1)
    found = own.session(256).prefill(golden["p08.tokens"], experts=True, draft=True)
    del own
    gc.collect()
    assert (found.logits.shape, found.logits.dtype) == ((130, 512), np.float32)
    assert found.logits.flags.c_contiguous
    assert (found.experts.shape, found.experts.dtype) == ((4, 130, 2), np.int32)
    np.testing.assert_allclose(found.weights.sum(-1), 1, atol=1e-6)
    assert found.draft_logits.shape == (129, 512)
    np.testing.assert_allclose(found.logits[golden["p08.positions"]], golden["p08.logits"], atol=1e-3, rtol=0)
    assert found.next == found.logits[-1].argmax()


def test_what_was_not_asked_for_is_none(model: Any) -> None:
    session = model.session(256)
    found = session.prefill(IDS, every=False)
    assert found.logits.shape == (1, 512)
    assert (found.experts, found.weights, found.draft_logits) == (None, None, None)
    whole = model.session(256).prefill(IDS)
    assert np.array_equal(found.logits[0], whole.logits[-1])
    again = model.session(256).prefill(IDS, every=False, draft=True)
    assert np.array_equal(again.logits[0], whole.logits[-1])
    step = session.step(5, experts=True)
    assert (step.logits.shape, step.experts.shape) == ((1, 512), (4, 1, 2))
    assert session.position == 151


def test_ids_may_be_lists_and_arrays_of_any_integers(model: Any) -> None:
    expected = model.session(64).prefill(IDS[:9]).logits
    kinds = [IDS[:9].tolist(), tuple(IDS[:9].tolist()), IDS[:9].astype(np.int64), IDS[:9].astype(np.uint16)]
    strided = np.repeat(IDS[:9], 2)[::2]
    for ids in [*kinds, strided]:
        assert np.array_equal(model.session(64).prefill(ids).logits, expected)


@pytest.mark.parametrize(
    ("ids", "what"),
    [
        ([], "the prompt is empty"),
        ([1.5], "token ids must be a list"),
        ([[1, 2]], "token ids must be a list"),
        (["a"], "token ids must be a list"),
        (object(), "token ids must be a list"),
        ([512], "the token id 512 is not in the vocabulary"),
        ([-1], "the token id -1 is not in the vocabulary"),
        ([2**40], f"the token id {2**40} is not in the vocabulary"),
    ],
)
def test_bad_ids_are_refused_and_change_nothing(model: Any, ids: Any, what: str) -> None:
    session = model.session(64)
    with pytest.raises(UsageError) as caught:
        session.prefill(ids)
    assert caught.value.what.startswith(what)
    assert session.position == 0
    session.prefill([1])


def test_errors_carry_what_where_why_and_hint(module: Any, model: Any, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        module.Model(tmp_path)
    assert "config.json" in str(caught.value)
    assert caught.value.exit_code == 2
    shutil.copytree(folder, tmp_path / "cut")
    (tmp_path / "cut/model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:-1])
    with pytest.raises(UsageError) as caught:
        module.Model(tmp_path / "cut")
    assert caught.value.where is not None
    assert caught.value.where.startswith(str(tmp_path / "cut/model.safetensors"))
    with pytest.raises(UsageError, match="math cannot be `f16`"):
        module.Model(folder, math="f16")
    with pytest.raises(UsageError, match="mmx"):
        module.Model(folder, isa="mmx")
    with pytest.raises(UsageError, match="pass_tokens"):
        model.session(64, pass_tokens=100)
    with pytest.raises(UsageError, match="cannot be made"):
        model.session(0)
    with pytest.raises(UsageError, match="layer 3 has no delta state"):
        model.session(64).delta_state(3)
    with pytest.raises(TypeError):
        model.session("64")


def test_a_full_session_is_an_error_and_can_be_cleared(model: Any) -> None:
    session = model.session(70)
    with pytest.raises(AimaError, match="71 tokens do not fit into 70"):
        session.prefill(IDS[:71])
    with pytest.raises(AimaError) as caught:
        session.step(1)
    assert caught.value.hint == "clear() it, or restore() a snapshot"
    session.clear()
    assert np.array_equal(session.prefill(IDS[:70]).logits, model.session(70).prefill(IDS[:70]).logits)


def test_snapshots_go_into_any_session_of_the_model(module: Any, model: Any, folder: Path) -> None:
    whole = model.session(256).prefill(IDS).logits
    first = model.session(256)
    first.prefill(IDS[:128], every=False)
    kept = first.snapshot()
    assert kept.position == 128
    second = model.session(256)
    second.prefill(IDS[:5])
    second.restore(kept)
    assert second.position == 128
    assert np.array_equal(second.prefill(IDS[128:]).logits, whole[128:])
    with pytest.raises(UsageError, match="another model"):
        module.Model(folder, math="f32").session(256).restore(kept)
    with pytest.raises(AimaError, match="has not seen the tokens"):
        first.prefill(IDS[128:], draft=True)


def test_a_checkpoint_without_draft_head(module: Any, folder: Path, tmp_path: Path) -> None:
    blob = (folder / "model.safetensors").read_bytes().replace(b'"mtp.', b'"model.visual.')
    size = int.from_bytes(blob[:8], "little")
    grown = 19 * (len("model.visual.") - len("mtp."))
    (tmp_path / "model.safetensors").write_bytes((size + grown).to_bytes(8, "little") + blob[8:])
    shutil.copyfile(folder / "config.json", tmp_path / "config.json")
    plain = module.Model(tmp_path, math="f32")
    assert plain.has_draft_head is False
    with pytest.raises(UsageError, match="no draft head"):
        plain.session(64).prefill([1, 2], draft=True)


def test_other_threads_run_while_the_engine_computes(model: Any) -> None:
    ids = np.tile(IDS, 40)
    ticks, done = [], threading.Event()

    def count() -> None:
        while not done.is_set():
            ticks.append(time.monotonic())
            time.sleep(0.001)

    counter = threading.Thread(target=count)
    counter.start()
    start = time.monotonic()
    model.session(len(ids)).prefill(ids, every=False)
    end = time.monotonic()
    done.set()
    counter.join()
    during = [tick for tick in ticks if start < tick < end]
    assert len(during) >= 3


def test_sessions_of_two_threads_take_turns(model: Any) -> None:
    expected = model.session(256).prefill(IDS).logits
    found: list[np.ndarray] = []

    def work() -> None:
        found.append(model.session(256).prefill(IDS).logits)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert all(np.array_equal(logits, expected) for logits in found)


INTERRUPTED = """
import signal, sys
from aimabuild import _native
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job has it ignored
session = _native.Model(sys.argv[1], math="f32", threads=1).session(262144)
ids = [1, 2, 3, 4] * 60000
sys.stdout.write("ready"); sys.stdout.flush()
try:
    session.prefill(ids, every=False)
except KeyboardInterrupt:
    try:
        session.step(1)
    except Exception as error:
        assert "did not finish" in str(error), error
    session.clear()
    session.step(1)
    sys.exit(7)
"""


def test_ctrl_c_ends_a_computation(module: Any, folder: Path) -> None:
    command = [sys.executable, "-c", INTERRUPTED, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.read(5) == "ready"
        time.sleep(0.5)
        child.send_signal(signal.SIGINT)
        try:
            _, errors = child.communicate(timeout=120)
        finally:
            child.kill()
    assert child.returncode == 7, errors
