"""What the command writes, what it replaces, and that the engine says the sentence."""

from __future__ import annotations

import errno
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from enginetool import ROOT, engine_lines

from aimabuild.base.errors import AimaError, UsageError
from aimabuild.base.files import sha256_file
from aimabuild.base.reporter import Reporter
from aimabuild.cli import cli
from aimabuild.demo import DemoModel, fit, model, tokenizer, weights, write_demo_model
from aimabuild.demo.forward import Forward
from aimabuild.demo.tokenizer import Ranks
from aimabuild.toolchain import Toolchain

pytestmark = pytest.mark.toolchain

NAMES = ["README.md", "config.json", "generation_config.json", "model.safetensors", "tokenizer.json"]


def digests(folder: Path) -> dict[str, str]:
    """Digest of each file."""
    return {path.name: sha256_file(path) for path in sorted(folder.iterdir())}


def read_tensors(path: Path) -> tuple[dict[str, Any], bytes]:
    """Header and data of a safetensors file."""
    blob = path.read_bytes()
    (length,) = struct.unpack_from("<Q", blob)
    return json.loads(blob[8 : 8 + length]), blob[8 + length :]


def test_the_same_bytes_again(demo: DemoModel, tools: Toolchain, tmp_path: Path) -> None:
    write_demo_model(tmp_path / "again", tools, Reporter(quiet=True))
    assert digests(tmp_path / "again") == digests(demo.folder)
    assert sorted(digests(demo.folder)) == NAMES


def test_the_checkpoint(demo: DemoModel) -> None:
    header, data = read_tensors(demo.folder / "model.safetensors")
    header.pop("__metadata__")
    assert len(header) == 2 + 3 * 18 + 15 + 1
    end = 0
    for name in sorted(header):
        tensor = header[name]
        assert tensor["dtype"] == "BF16"
        assert tensor["data_offsets"] == [end, end + 2 * int(np.prod(tensor["shape"]))]
        end = tensor["data_offsets"][1]
    assert end == len(data)
    assert header["lm_head.weight"]["shape"] == [248_320, demo.hidden_size]
    config = json.loads((demo.folder / "config.json").read_bytes())
    assert "recites one sentence" in config["aima_demo"]["note"]
    assert config["text_config"]["layer_types"] == 3 * ["linear_attention"] + ["full_attention"]
    assert json.loads((demo.folder / "generation_config.json").read_bytes())["eos_token_id"] == [
        248046,
        248044,
    ]
    assert sha256_file(demo.folder / "tokenizer.json") == tokenizer.SHA256
    assert "demo" in (demo.folder / "README.md").read_text()


def test_the_head_speaks_only_the_sentence(demo: DemoModel) -> None:
    header, data = read_tensors(demo.folder / "model.safetensors")
    begin, end = header["lm_head.weight"]["data_offsets"]
    head = np.frombuffer(data[begin:end], dtype="<u2").reshape(248_320, -1)
    thought = {248_069, 271}  # </think> and a blank line
    assert set(np.flatnonzero(head.any(axis=1)).tolist()) == set(demo.token_ids) | thought


def test_margins(demo: DemoModel) -> None:
    assert demo.margin >= 10
    assert demo.noise < demo.margin / 5


@pytest.mark.parametrize("math", ["f32", "bf16"])
def test_the_engine_says_it(demo: DemoModel, ranks: Ranks, math: str) -> None:
    options = [
        "--model-dir",
        demo.folder,
        "--math",
        math,
        "--context-tokens",
        "64",
        "--json",
        "--device",
        "cpu",
    ]
    (plain,) = engine_lines("generate", *options, "--prompt", demo.prompt)
    assert plain["text"] == demo.sentence
    assert plain["finish_reason"] == "stop"
    assert (plain["prompt_ids"], plain["token_ids"]) == (list(demo.prompt_ids), list(demo.token_ids))
    for case in fit.documented_cases(ranks, demo.sentence):
        ids = ",".join(map(str, case.prompt))
        (said,) = engine_lines("generate", *options, "--prompt-ids", ids)
        assert said["token_ids"] == list(case.reply), case.name
    (greeting,) = engine_lines("generate", *options, "--prompt", "Hello")
    assert greeting["text"] == demo.sentence


def test_prompts_are_tokenised_as_the_engine_does(demo: DemoModel, ranks: Ranks) -> None:
    texts = [
        fit.PROMPT,
        fit._TURN,
        fit._TURN + "\n</think>\n\n",
        *fit._OTHERS,
        demo.sentence,
        "It's _x1 =  y\n\n z ",
    ]
    options = ["--model-dir", demo.folder, "--added-tokens", "--texts-jsonl", "-"]
    answers = engine_lines(
        "tokenizer-probe", *options, text="".join(json.dumps(text) + "\n" for text in texts)
    )
    for text, answer in zip(texts, answers, strict=True):
        assert answer["ids"] == list(fit.encode(ranks, text)), text


def test_logits_are_the_engines(demo: DemoModel, tmp_path: Path) -> None:
    """The numpy forward pass and the engine's: two programs, one model."""
    ids = [*demo.prompt_ids, 1000, 5, 248_069, 77_777, *demo.token_ids[:5]]
    out = tmp_path / "logits.npy"
    options = [
        "--math",
        "f32",
        "--context-tokens",
        "64",
        "--max-tokens",
        "1",
        "--logits-out",
        str(out),
        "--json",
    ]
    text = ",".join(map(str, ids))
    engine_lines("generate", "--model-dir", demo.folder, "--prompt-ids", text, *options)
    header, data = read_tensors(demo.folder / "model.safetensors")
    values = {}
    for name, tensor in header.items():
        if name != "__metadata__":
            begin, end = tensor["data_offsets"]
            values[name] = np.frombuffer(data[begin:end], dtype="<u2").reshape(tensor["shape"])
    head = weights.from_bits(values.pop(weights.HEAD))
    embedded = weights.from_bits(values.pop(weights.EMBEDDING)[ids])
    layers = {name: weights.from_bits(bits) for name, bits in values.items()}
    states = Forward(weights.dims(demo.hidden_size), layers, bf16=False).hidden(embedded)
    logits = np.load(out)
    assert logits.shape == (len(ids), 248_320)
    assert np.abs(states @ head.T - logits).max() < 1e-3


def test_another_sentence(tools: Toolchain, tmp_path: Path) -> None:
    sentence = "Über 7 Brücken 桥 — and back, and back again!"
    said = write_demo_model(tmp_path / "m", tools, Reporter(quiet=True), sentence=sentence)
    options = ["--context-tokens", "64", "--json", "--prompt", said.prompt]
    (answer,) = engine_lines("generate", "--model-dir", said.folder, *options)
    assert answer["text"] == sentence


@pytest.mark.parametrize(
    ("sentence", "message"),
    [
        ("", "empty"),
        ("  ", "empty"),
        ("\ud800", "not valid text"),
        ("word " * 300, "at most 200"),
        ("no " * 40, "cannot learn"),
    ],
)
def test_sentences_that_are_refused(ranks: Ranks, sentence: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        fit.fit(ranks, sentence)


class Nothing:
    """What takes time is left out where only the folder matters."""

    @staticmethod
    def install(monkeypatch: pytest.MonkeyPatch, ranks: Ranks) -> None:
        found = fit.Fit(128, (fit.Case("plain", (1,), (2,)),), frozenset(), {}, 99.0, 0.1, (0, 0))
        monkeypatch.setattr(model.tokenizer, "read_ranks", lambda _: ranks)
        monkeypatch.setattr(model.tokenizer, "tokenizer_json", lambda _: b"{}")
        monkeypatch.setattr(model, "ids_of_sentence", lambda *_: ())
        monkeypatch.setattr(model, "fit", lambda *_: found)
        monkeypatch.setattr(model, "_write_tensors", lambda file, _: file.write(b"tensors"))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Writing without fitting."""
    Nothing.install(monkeypatch, Ranks((), ()))
    return monkeypatch


def write(tools: Toolchain, folder: Path, *, force: bool = False) -> DemoModel:
    """Write, quietly."""
    return write_demo_model(folder, tools, Reporter(quiet=True), force=force)


def test_an_empty_folder_and_an_old_demo_are_replaced(
    quick: pytest.MonkeyPatch, tools: Toolchain, tmp_path: Path
) -> None:
    folder = tmp_path / "new" / "model"
    write(tools, folder)
    assert sorted(path.name for path in folder.iterdir()) == NAMES
    (folder / "stray").write_text("x")
    write(tools, folder)
    assert sorted(path.name for path in folder.iterdir()) == NAMES
    empty = tmp_path / "empty"
    empty.mkdir()
    write(tools, empty)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "new"]


def test_other_content_is_kept_unless_forced(
    quick: pytest.MonkeyPatch, tools: Toolchain, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text('{"architectures": []}')
    with pytest.raises(UsageError, match="not empty"):
        write(tools, folder)
    assert [path.name for path in folder.iterdir()] == ["config.json"]
    write(tools, folder, force=True)
    assert sorted(path.name for path in folder.iterdir()) == NAMES


def test_what_is_no_folder_is_refused(quick: pytest.MonkeyPatch, tools: Toolchain, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    for path in (file, link):
        with pytest.raises(UsageError, match="this is none"):
            write(tools, path, force=True)
    assert file.read_text() == "x"


def test_a_full_disk_leaves_nothing(quick: pytest.MonkeyPatch, tools: Toolchain, tmp_path: Path) -> None:
    def full(file: Any, _: Any) -> None:
        file.write(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    quick.setattr(model, "_write_tensors", full)
    for present in (False, True):
        folder = tmp_path / f"model-{present}"
        if present:
            folder.mkdir()
        with pytest.raises(AimaError, match="cannot be written") as caught:
            write(tools, folder)
        assert caught.value.exit_code == 1
        assert "No space left" in str(caught.value)
        assert folder.is_dir() == present
        assert not present or not any(folder.iterdir())
    assert [path.name for path in tmp_path.iterdir()] == ["model-True"]


def test_the_command(quick: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "a model"
    runner = CliRunner()
    arguments = ["-q", "demo-model", str(folder), "--root", str(ROOT), "--offline"]
    done = runner.invoke(cli, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert report["schema"] == "aimabuild/demo-model/v1"
    assert report["folder"] == str(folder)
    done = runner.invoke(cli, arguments)
    assert f"--model-dir '{folder}' --prompt 'What is AIMA?'" in done.stdout


@pytest.mark.parametrize(("sentence", "held"), [(" ", []), ("\udcff", []), ("fine", ["file"])])
def test_sentence_and_folder_are_checked_before_anything_is_fetched(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sentence: str, held: list[str]
) -> None:
    def fetch(*_: object, **__: object) -> None:
        raise AssertionError("fetched")

    monkeypatch.setattr("aimabuild.toolchain.open_toolchain", fetch)
    for name in held:
        (tmp_path / name).write_text("mine")
    with pytest.raises(UsageError):
        cli.main(["demo-model", str(tmp_path), "--sentence", sentence], standalone_mode=False)
