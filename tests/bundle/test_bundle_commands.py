"""`closure`, `explain`, `verify` and `diff` as a user meets them: output, JSON, exit codes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from bundlemaker import KERNEL, NAME, make_bundle, seal, write_lists
from click.testing import CliRunner, Result
from elfmaker import Elf, program

from aimabuild.base.errors import AimaError, CheckFailedError, UsageError
from aimabuild.cli import cli


def call(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [str(a) for a in arguments])


def test_verify(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path)
    done = call("verify", bundle)
    assert done.exit_code == 0, done.output
    assert "ok" in done.output
    value = json.loads(call("verify", bundle, "--json").stdout)
    assert value["schema"] == "aimabuild/verify/v1"
    assert value["ok"] is True
    (bundle / "lib/empty").write_text("x")
    done = call("verify", bundle)
    assert isinstance(done.exception, CheckFailedError)
    assert "lib/empty" in str(done.exception)
    value = json.loads(call("verify", bundle, "--json").stdout)
    assert value["ok"] is False
    assert value["problems"] == ["lib/empty: has 1 bytes, not 0"]
    assert isinstance(call("verify", tmp_path / "none").exception, UsageError)


def test_verify_archive(tmp_path: Path) -> None:
    sealed = seal(make_bundle(tmp_path), tmp_path / "out")
    assert json.loads(call("verify", sealed.path, "--json").stdout)["tar_sha256"] == sealed.tar_sha256
    data = bytearray(sealed.path.read_bytes())
    data[len(data) // 2] ^= 1
    whole = sealed.path.read_bytes()
    for damaged in (bytes(data), whole[: len(whole) // 2], b"", b"no archive", whole + b"x"):
        sealed.path.write_bytes(damaged)
        error = call("verify", sealed.path).exception
        assert isinstance(error, CheckFailedError), damaged[:20]
        assert "damaged" in str(error)


def test_diff_of_the_same(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path)
    archive = seal(bundle, tmp_path / "out").path
    assert "the same content" in call("diff", bundle, archive).output
    assert json.loads(call("diff", archive, bundle, "--json").stdout)["same"] is True


def test_diff(tmp_path: Path) -> None:
    old = make_bundle(tmp_path / "old")
    new = make_bundle(tmp_path / "new")
    (new / "lib/empty").unlink()
    (new / "lib/new.so").write_text("new")
    (new / "lib/libx.so.1.2").write_text("library " * 101)
    (new / "bin/aima-engine").write_text("LAUNCHER\n")
    (new / "lib/libx.so.1").unlink()
    (new / "lib/libx.so.1").symlink_to("new.so")
    tuned = {
        **KERNEL,
        "tile": {"block_m": 32},
        "sha256": "1" * 64,
        "resources": {"vgpr": 120, "spills": 0, "wmma": 16},
    }
    other = {**KERNEL, "op": "rms_norm"}
    (new / "share/aima/kernels.json").write_text(
        json.dumps({"schema": "aimabuild/kernels/v1", "kernels": [tuned, other]})
    )
    write_lists(new)
    value = json.loads(call("diff", old, new, "--json").stdout)
    files = {change["name"]: change for change in value["files"]}
    assert files["lib/empty"]["what"] == "removed"
    assert files["lib/new.so"] == {"what": "added", "name": "lib/new.so", "details": ["3 bytes"]}
    assert files["lib/libx.so.1.2"]["details"] == ["size: 800 -> 808"]
    assert files["bin/aima-engine"]["details"] == ["content: other bytes of the same size"]
    assert files["lib/libx.so.1"]["details"] == ["target: libx.so.1.2 -> new.so"]
    kernels = {change["name"]: change for change in value["kernels"]}
    changed = kernels["gemm bf16 n=64 k=32 tokens 1-64 (triton/gemm)"]
    assert changed["details"] == ["vgpr: 100 -> 120", "block_m 16 -> 32"]
    assert kernels["rms_norm bf16 n=64 k=32 tokens 1-64 (triton/gemm)"]["what"] == "added"
    assert value["same"] is False
    assert "removed file lib/empty" in call("diff", old, new).output


def test_explain(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path)
    archive = seal(bundle, tmp_path / "out").path
    for source, name in ((bundle, "lib/libx.so.1.2"), (archive, "libx.so.1.2")):
        value = json.loads(call("explain", name, "--in", source, "--json").stdout)
        assert value["path"] == "lib/libx.so.1.2"
        assert value["needed_by"] == [
            {"object": "libexec/aima-engine.real", "as": "libx.so.1", "versions": ["X_1"]}
        ]
        assert value["owner"]["licence"] == "MIT"
    text = call("explain", bundle / "lib/libx.so.1").output
    for word in ("-> libx.so.1.2", "engine -> libx.so", "libx 1, MIT", "needed by: libexec/aima-engine.real"):
        assert word in text
    opened = json.loads(call("explain", "lib/deep/libx.so", "--in", bundle, "--json").stdout)
    assert opened["opened_by"] == ["libexec/aima-engine.real"]
    error = call("explain", "libx.so.1.3", "--in", bundle).exception
    assert isinstance(error, UsageError)
    assert "libx.so.1.2" in str(error.hint)
    write_lists(bundle)
    shutil.copy(bundle / "lib/empty", bundle / "lib/deep/empty")
    write_lists(bundle)
    assert isinstance(call("explain", "empty", "--in", bundle).exception, UsageError)


def test_explain_guesses_the_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert isinstance(call("explain", "libx.so.1").exception, UsageError)
    seal(make_bundle(tmp_path / "x"), tmp_path / "dist")
    assert "lib/libx.so.1" in call("explain", "libx.so.1").output
    shutil.copy(tmp_path / f"dist/{NAME}.tar.zst", tmp_path / "dist/b.tar.zst")
    assert isinstance(call("explain", "libx.so.1").exception, UsageError)


def test_closure_of_a_file(tmp_path: Path) -> None:
    main = program(needed=["liba.so"]).write(tmp_path / "main")
    Elf(soname="liba.so").write(tmp_path / "lib/liba.so")
    done = call("closure", main, "--library-path", tmp_path / "lib", "--json")
    assert done.exit_code == 0
    value = json.loads(done.stdout)
    assert value["objects"][0]["needed"] == [{"name": "liba.so", "path": str(tmp_path / "lib/liba.so")}]
    assert "main -> liba.so" in call("closure", main, "--library-path", tmp_path / "lib").output
    done = call("closure", main)
    assert isinstance(done.exception, CheckFailedError)
    assert "liba.so" in str(done.exception)
    assert json.loads(call("closure", main, "--json").stdout)["problems"][0]["code"] == "unresolved"


def test_closure_of_a_bundle(tmp_path: Path) -> None:
    program(needed=["liba.so"]).write(tmp_path / "libexec/aima-engine.real")
    Elf(soname="ld.so").write(tmp_path / "libexec/aima-engine")
    Elf(soname="liba.so", needed=["ld.so"]).write(tmp_path / "lib/liba.so")
    assert "aima-engine.real -> liba.so" in call("closure", tmp_path).output


def test_closure_of_a_bundle_on_the_hosts_libc(tmp_path: Path) -> None:
    program(needed=["libc.so.6"]).write(tmp_path / "libexec/aima-engine.real")
    assert isinstance(call("closure", tmp_path).exception, CheckFailedError)
    (tmp_path / "libexec/host-libc").write_text("")
    assert call("closure", tmp_path).exit_code == 0


def test_closure_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("text")
    assert isinstance(call("closure", tmp_path / "x").exception, CheckFailedError)
    assert isinstance(call("closure", tmp_path / "missing").exception, UsageError)


def test_diff_shows_kernels_of_one_object_together(tmp_path: Path) -> None:
    old, new = make_bundle(tmp_path / "old"), make_bundle(tmp_path / "new")
    for bundle, name, block in ((old, "a", 128), (new, "b", 64)):
        kernels = [
            {**KERNEL, "object": "o" + name, "dims": {"n": n}, "tile": {"block_m": block}} for n in (64, 128)
        ]
        kernels.append({**KERNEL, "object": "p" + name, "dims": {"n": 256}, "tile": {"block_m": block}})
        text = json.dumps({"schema": "aimabuild/kernels/v1", "kernels": kernels})
        (bundle / "share/aima/kernels.json").write_text(text)
        write_lists(bundle)
    lines = [line for line in call("diff", old, new).stdout.splitlines() if "gemm" in line]
    assert lines == [
        "changed kernel gemm bf16 n=128 tokens 1-64 (triton/gemm): block_m 128 -> 64",
        "  the same object: gemm bf16 n=64 tokens 1-64 (triton/gemm)",
        "changed kernel gemm bf16 n=256 tokens 1-64 (triton/gemm): block_m 128 -> 64",
    ]


def test_diff_of_something_else(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "bundle")
    error = call("diff", bundle, tmp_path).exception
    assert isinstance(error, UsageError)
    assert str(bundle) in str(error.hint)
    assert "build/RECIPE/bundle/NAME" in str(
        call("diff", bundle, tmp_path / "bundle" / NAME / "lib").exception
    )


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("kernels.json", '{"schema": "aimabuild/kernels/v2", "kernels": []}'),
        ("kernels.json", '{"kernels": []}'),
        ("kernels.json", '{"schema": "aimabuild/kernels/v1", "kernels": 1}'),
        ("kernels.json", '{"schema": "aimabuild/kernels/v1", "kernels": [1]}'),
        ("kernels.json", '{"schema": "aimabuild/kernels/v1", "kernels": [{"dims": []}]}'),
        ("kernels.json", '{"schema": "aimabuild/kernels/v1", "kernels": [{"tokens": 1}]}'),
        ("kernels.json", '{"schema": "aimabuild/kernels/v1", "kernels": [{"tile": [1]}]}'),
        ("kernels.json", '{"schema": "aimabuild/kernels/v1", "kernels": [{"resources": 1}]}'),
        ("kernels.json", "[]"),
        ("closure.json", '{"schema": "other"}'),
    ],
)
def test_diff_of_damaged_documents_is_one_error(path: str, text: str, tmp_path: Path) -> None:
    old, new = make_bundle(tmp_path / "old"), make_bundle(tmp_path / "new")
    (new / "share/aima" / path).write_text(text)
    write_lists(new)
    for pair in ((old, new), (new, old), (new, new)):
        error = call("diff", *pair).exception
        assert isinstance(error, AimaError), (pair, error)
        assert path in str(error)


def test_explain_of_damaged_lists_is_one_error(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path)
    for text in ("{}", '{"entries": 1}', '{"entries": [1]}', '{"entries": [{"path": "lib"}]}'):
        (bundle / "share/aima/manifest.json").write_text(text)
        assert isinstance(call("explain", "lib", "--in", bundle).exception, AimaError), text
