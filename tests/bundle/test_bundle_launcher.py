"""The launcher in a real bundle: where it may lie, how it is called, what it lets through and checks."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from bundlemaker import write_lists
from test_bundle_verify import HOLES

pytestmark = pytest.mark.toolchain
BARE = {"PATH": "/usr/bin:/bin"}


def run(
    launcher: Path | str, *arguments: str, env: dict[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(launcher), *arguments],
        capture_output=True,
        text=True,
        env={} if env is None else env,
        cwd=cwd,
        timeout=120,
    )


def show(launcher: Path | str, *arguments: str, **options: Any) -> dict[str, Any]:
    done = run(launcher, *(arguments or ("show",)), **options)
    assert done.returncode == 0, done.stderr
    value: dict[str, Any] = json.loads(done.stdout)
    value["env"] = dict(item.split("=", 1) for item in value["env"])
    return value


@pytest.fixture
def bundle(small_bundle: Path, tmp_path: Path) -> Path:
    """A copy of the small bundle that a test may change."""
    return Path(shutil.copytree(small_bundle, tmp_path / "bundle", symlinks=True))


@pytest.mark.parametrize(
    "name",
    [
        "plain",
        "with space",
        "co:lon",
        "semi;colon",
        "$ORIGIN",
        "a$LIB",
        "${ORIGIN}x",
        "new\nline",
        "%s%n",
        "'\"`",
        "ünï＊",
        "-x",
        "a" * 200,
    ],
)
def test_odd_places(name: str, small_bundle: Path, tmp_path: Path) -> None:
    bundle = Path(shutil.copytree(small_bundle, tmp_path / name, symlinks=True))
    assert show(bundle / "bin/aima-engine")["comm"] == "aima-engine"
    # A library that is opened later must be found as well, and the host's must not.
    assert run(bundle / "bin/aima-engine", "open", "libgcc_s.so.1").returncode == 0
    assert run(bundle / "bin/aima-engine", "open", "libz.so.1").returncode == 1


def test_identity(small_bundle: Path) -> None:
    value = show(small_bundle / "bin/aima-engine", "show", "a", "", "--argv0", "b")
    assert value["argv"] == [str(small_bundle / "bin/aima-engine"), "show", "a", "", "--argv0", "b"]
    assert value["comm"] == "aima-engine"
    assert value["exe"] == str(small_bundle / "libexec/aima-engine")
    assert value["execfn"] == str(small_bundle / "libexec/aima-engine.real")


def test_ways_to_call_it(small_bundle: Path, tmp_path: Path) -> None:
    launcher = small_bundle / "bin/aima-engine"
    (tmp_path / "link").symlink_to(launcher)
    (tmp_path / "chain").symlink_to("link")
    assert show(tmp_path / "chain")["argv"][0] == str(tmp_path / "chain")
    assert show("./aima-engine", cwd=launcher.parent)["argv"][0] == "./aima-engine"
    by_path = subprocess.run(
        ["sh", "-c", "aima-engine"],
        env={"PATH": f"{launcher.parent}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    assert json.loads(by_path.stdout)["argv"] == ["aima-engine"]
    for name in ("--help", "--library-path", "", "-c"):
        done = subprocess.run([name, "show"], executable=launcher, capture_output=True, text=True, env={})
        assert json.loads(done.stdout)["argv"] == [name, "show"]


def test_a_deleted_working_directory(small_bundle: Path, tmp_path: Path) -> None:
    script = 'mkdir "$1" && cd "$1" && rmdir "$1" && exec "$2" show'
    done = subprocess.run(
        ["sh", "-c", script, "sh", str(tmp_path / "gone"), str(small_bundle / "bin/aima-engine")],
        env=BARE,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_a_hard_link_or_copy_elsewhere(small_bundle: Path, tmp_path: Path) -> None:
    shutil.copy(small_bundle / "bin/aima-engine", tmp_path / "copy")
    done = run(tmp_path / "copy")
    assert done.returncode == 1
    assert "no bundle around this program" in done.stderr
    assert "symbolic link" in done.stderr


def test_closed_standard_streams(small_bundle: Path, tmp_path: Path) -> None:
    odd = Path(shutil.copytree(small_bundle, tmp_path / "co:lon", symlinks=True))
    done = subprocess.run(
        ["sh", "-c", '"$1" show 0<&- 2>&-', "sh", str(odd / "bin/aima-engine")],
        env=BARE,
        capture_output=True,
        text=True,
    )
    assert json.loads(done.stdout)["comm"] == "aima-engine"


HOST = {
    "LD_PRELOAD": "/nonexistent/noise.so",
    "LD_LIBRARY_PATH": "/nonexistent",
    "LD_AUDIT": "/nonexistent/audit.so",
    "LD_DEBUG": "all",
    "GLIBC_TUNABLES": "glibc.malloc.nonsense=1",
    "LOCPATH": "/nonexistent",
    "LANG": "xx_YY.UTF-8",
    "LC_ALL": "en_US.UTF-8",
    "GCONV_PATH": "/nonexistent",
    "HSA_OVERRIDE_GFX_VERSION": "",
    "HSA_OVERRIDE_GFX_VERSION_1": "9.0.0",
    "HSA_TOOLS_LIB": "x.so",
    "ROCP_TOOL_LIBRARIES": "x.so",
    "ROCPROFILER_REGISTER_ENABLED": "1",
    "ROCM_KPACK_PATH": "/x",
    "ROCBLAS_TENSILE_LIBPATH": "/x",
    "HIPBLASLT_TENSILE_LIBPATH": "/x",
    "ROCM_PATH": "/opt/rocm",
    "HIP_PATH": "/opt/rocm",
    "AMD_COMGR_SAVE_TEMPS": "1",
    "AIMA_DROPPED_ENV": "a lie",
}
KEPT = {
    "ROCR_VISIBLE_DEVICES": "0",
    "HIP_VISIBLE_DEVICES": "0",
    "GPU_DEVICE_ORDINAL": "0",
    "TMPDIR": "/nonexistent",
    "HOME": "/home/x",
    "PATH": "/usr/bin",
    "LDX": "not the loader's",
    "AMD_LOG_LEVEL": "0",
    "EMPTY": "",
    "MULTI": "a=b=c",
}


def test_the_environment(small_bundle: Path) -> None:
    env = show(small_bundle / "bin/aima-engine", env={**HOST, **KEPT})["env"]
    set_by_us = {
        "GCONV_PATH": f"{small_bundle}/share/aima/gconv",
        "LC_ALL": "C",
        "AMDGPU_ASIC_ID_TABLE_PATHS": f"{small_bundle}/share/libdrm",
        "ROCM_PATH": str(small_bundle),
        "HIP_PATH": str(small_bundle),
        "AMD_COMGR_CACHE": "0",
    }
    dropped = set(env.pop("AIMA_DROPPED_ENV").split(","))
    assert env == {**KEPT, "LANG": "xx_YY.UTF-8", **set_by_us}
    assert dropped == set(HOST) - {"LANG", "AIMA_DROPPED_ENV"}


def test_nothing_to_drop(small_bundle: Path) -> None:
    first = show(small_bundle / "bin/aima-engine", env=KEPT)["env"]
    assert "AIMA_DROPPED_ENV" not in first
    # What a first start has set is no news to a second one.
    assert "AIMA_DROPPED_ENV" not in show(small_bundle / "bin/aima-engine", env=first)["env"]


def test_what_is_kept_on_request(small_bundle: Path) -> None:
    kept = {
        **HOST,
        "LD_PRELOAD": "",
        "LD_AUDIT": "",
        "LD_DEBUG": "",
        "AIMA_KEEP_ENV": "LD_LIBRARY_PATH,ROCM_PATH",
    }
    env = show(small_bundle / "bin/aima-engine", env=kept)["env"]
    assert env["LD_LIBRARY_PATH"] == "/nonexistent"
    assert env["ROCM_PATH"] == "/opt/rocm"
    assert "LD_PRELOAD" not in env
    assert "LD_LIBRARY_PATH" not in env["AIMA_DROPPED_ENV"].split(",")
    # A part of a name in the list is not the name.
    env = show(
        small_bundle / "bin/aima-engine",
        env={"LD_BIND_NOW": "1", "AIMA_KEEP_ENV": "LD,LD_BIND_NOW_,xLD_BIND_NOW"},
    )
    assert "LD_BIND_NOW" not in env["env"]


def test_values_in_an_odd_place_hold_no_colon(small_bundle: Path, tmp_path: Path) -> None:
    bundle = Path(shutil.copytree(small_bundle, tmp_path / "a:b", symlinks=True))
    env = show(bundle / "bin/aima-engine")["env"]
    for name in ("GCONV_PATH", "AMDGPU_ASIC_ID_TABLE_PATHS", "ROCM_PATH"):
        assert re.match(r"/proc/self/fd/\d+(/|$)", env[name])


def test_no_host_library(small_bundle: Path) -> None:
    host = next(
        (p for p in ("/usr/lib/x86_64-linux-gnu", "/usr/lib64") if Path(p, "libz.so.1").exists()), None
    )
    if host is None:
        pytest.skip("the host has no libz.so.1 to be tempted by")
    for env in ({}, {"LD_LIBRARY_PATH": host}):
        done = run(small_bundle / "bin/aima-engine", "open", "libz.so.1", env=env)
        assert done.returncode == 1
        assert "No such file" in done.stdout


def test_a_missing_libc_is_not_taken_from_the_host(bundle: Path) -> None:
    (bundle / "lib/libc.so.6").unlink()
    done = run(bundle / "bin/aima-engine")
    assert done.returncode != 0
    assert "libc.so.6" in done.stderr


def test_hwcaps_in_the_bundle_are_passed_over(bundle: Path) -> None:
    for level in ("v2", "v3", "v4"):
        folder = bundle / f"lib/glibc-hwcaps/x86-64-{level}"
        folder.mkdir(parents=True)
        (folder / "libc.so.6").write_text("decoy")
    assert show(bundle / "bin/aima-engine")["comm"] == "aima-engine"


def test_the_preload_file_of_the_host_is_not_read(small_bundle: Path, tmp_path: Path) -> None:
    """In a mount namespace whose /etc holds nothing but that file."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/ld.so.preload").write_text("/nonexistent/noise.so\n")
    script = 'mount --bind "$1" /etc && exec "$2" show || exit 77'
    arguments = ["sh", str(tmp_path / "etc"), str(small_bundle / "bin/aima-engine")]
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", script, *arguments], capture_output=True, text=True, env=BARE
    )
    if done.returncode in {1, 77}:
        pytest.skip("no mount namespaces here")
    assert json.loads(done.stdout)["comm"] == "aima-engine"
    assert not done.stderr


@pytest.mark.parametrize(
    ("plant", "words"),
    [
        (lambda b: (b / "libexec/aima-engine.real").unlink(), "no bundle around this program"),
        (lambda b: (b / "libexec/aima-engine").unlink(), "the bundle is incomplete"),
        (lambda b: (b / "libexec/aima-engine").write_text("x"), "the file is damaged"),
        (lambda b: (b / "libexec/aima-engine").chmod(0o644), "check the modes"),
    ],
)
def test_a_broken_bundle_says_so(plant: Any, words: str, bundle: Path) -> None:
    plant(bundle)
    done = run(bundle / "bin/aima-engine")
    assert done.returncode == 1
    assert words in done.stderr
    assert done.stderr.startswith("error: ")


def test_a_file_system_that_forbids_programs(bundle: Path, tmp_path: Path) -> None:
    """lib/ alone is mounted noexec: the loader would say "failed to map segment", far from the cause."""
    shutil.copytree(bundle / "lib", tmp_path / "lib", symlinks=True)
    mount = 'mount -t tmpfs -o noexec none "$1/lib" && cp -a "$2/." "$1/lib" || exit 77'
    script = f'{mount}; exec "$1/bin/aima-engine"'
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", script, "sh", str(bundle), str(tmp_path / "lib")],
        capture_output=True,
        text=True,
        env=BARE,
    )
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip("no mount namespaces here")
    assert done.returncode == 1
    assert "mounted with `noexec`" in done.stderr
    assert str(bundle / "lib") in done.stderr


def test_a_path_that_is_too_long(small_bundle: Path, tmp_path: Path) -> None:
    fd = os.open(tmp_path, os.O_PATH)
    try:
        for _ in range(20):
            os.mkdir("d" * 200, dir_fd=fd)
            below = os.open("d" * 200, os.O_PATH, dir_fd=fd)
            os.close(fd)
            fd = below
        shutil.copytree(small_bundle, f"/proc/self/fd/{fd}/b", symlinks=True)
        done = subprocess.run(
            [f"/proc/self/fd/{fd}/b/bin/aima-engine"], capture_output=True, text=True, env={}, pass_fds=[fd]
        )
    finally:
        os.close(fd)
        subprocess.run(["rm", "-rf", str(tmp_path / ("d" * 200))], check=True)
    assert done.returncode == 1
    assert "too long" in done.stderr


def test_host_libc(host_bundle: Path) -> None:
    env = {"LD_LIBRARY_PATH": "/nonexistent", "LANG": "C.UTF-8"}
    value = show(host_bundle / "bin/aima-engine", env=env)
    assert value["env"] == env
    assert value["exe"] == str(host_bundle / "libexec/aima-engine.real")


def test_hip(hip_bundle: Path) -> None:
    done = run(
        hip_bundle / "bin/aima-engine",
        "hip",
        env={"ROCM_PATH": "/nonexistent", "LD_LIBRARY_PATH": "/nonexistent"},
    )
    assert done.returncode == 0, done.stderr
    value = json.loads(done.stdout)
    # 100 is hipErrorNoDevice; on a machine with a GPU the runtime answers with a count.
    assert value == {"code": 100, "count": 0} or (value["code"] == 0 and value["count"] > 0)


# --- verification by the launcher ---------------------------------------------------------------------------


def test_verify_bundle(bundle: Path) -> None:
    done = run(bundle / "bin/aima-engine", "--verify-bundle")
    assert done.returncode == 0, done.stdout
    assert done.stdout.startswith("bundle ok")
    (bundle / "lib/libc.so.6").chmod(0o755)
    done = run(bundle / "bin/aima-engine", "--verify-bundle")
    assert done.returncode == 3
    assert "lib/libc.so.6: the mode differs" in done.stdout
    assert run(bundle / "bin/aima-engine", "--verify-bundle", "x").returncode == 2


# What is only known to a program that reads JSON, or says the same in other words.
@pytest.mark.parametrize("hole", [name for name in HOLES if "list" not in name])
def test_the_launcher_finds_the_same_holes(hole: str, programs: Any, tmp_path: Path) -> None:
    from bundlemaker import make_bundle

    bundle = make_bundle(tmp_path)
    shutil.copy(programs.launcher, bundle / "bin/aima-engine")
    (bundle / "bin/aima-engine").chmod(0o755)
    (bundle / "libexec").mkdir(mode=0o755)
    (bundle / "libexec").chmod(0o755)
    (bundle / "libexec/aima-engine.real").write_text("")
    (bundle / "libexec/aima-engine.real").chmod(0o644)
    write_lists(bundle)
    assert run(bundle / "bin/aima-engine", "--verify-bundle").returncode == 0
    HOLES[hole][0](bundle)
    if not os.access(bundle / "bin/aima-engine", os.X_OK):
        pytest.skip("the launcher itself can no longer start")
    done = run(bundle / "bin/aima-engine", "--verify-bundle")
    assert done.returncode == 3, done.stdout
    assert HOLES[hole][1].split(":")[0] in done.stdout


def test_extracted_under_a_umask(bundle: Path) -> None:
    for path in [bundle, *bundle.rglob("*")]:
        if not path.is_symlink():
            path.chmod(path.stat().st_mode & 0o700)
    assert run(bundle / "bin/aima-engine", "--verify-bundle").returncode == 0
    (bundle / "lib/libc.so.6").chmod(0o644)
    assert run(bundle / "bin/aima-engine", "--verify-bundle").returncode == 3


LINES = ["", "aima-manifest-v1 1\n", "aima-manifest-v1 1\nd 0755 0 - .", "aima-manifest-v1 2\nd 0755 0 - .\n"]
LINES += [
    f"aima-manifest-v1 1\n{line}\n"
    for line in ("", "d", "d 0755", "d 0755 0 -", "d 0755 0 - ", "x 0755 0 - .")
]
LINES += [
    f"aima-manifest-v1 1\n{line}\n" for line in ("f 0755 0 - .", "d 9 0 - .", "d 0755 -1 - .", "l 0777 0 - .")
]
LINES += [
    "aima-manifest-v1 99999999\n",
    "aima-manifest-v1 1\nd 0755 0 - .\n\0",
    "aima-manifest-v1 1\nd 0755 0 - .\nx\n",
]
LINES += [
    "aima-manifest-v1 2\nd 0755 0 - b\nd 0755 0 - a\n",
    "aima-manifest-v1 18446744073709551617\n",
    "x" * 100,
]
LINES += [
    "aima-manifest-v1 1\nd 077777777777777777777777 0 - .\n",
    "aima-manifest-v1 1\nd 0755 0 - " + "a" * 9000 + "\n",
]


@pytest.mark.parametrize("text", LINES)
def test_a_damaged_list_ends_the_launcher_with_a_message(text: str, bundle: Path) -> None:
    (bundle / "share/aima/manifest.txt").write_text(text)
    done = run(bundle / "bin/aima-engine", "--verify-bundle")
    assert done.returncode == 3
    assert "the list of the bundle is damaged" in done.stderr


def test_a_list_that_is_missing_or_no_file(bundle: Path) -> None:
    (bundle / "share/aima/manifest.txt").unlink()
    done = run(bundle / "bin/aima-engine", "--verify-bundle")
    assert done.returncode == 3
    assert "the list of the bundle is missing" in done.stderr
    os.mkfifo(bundle / "share/aima/manifest.txt")
    done = run(bundle / "bin/aima-engine", "--verify-bundle")
    assert done.returncode == 3
    assert "the list of the bundle is not a regular file" in done.stderr


def test_names_with_controls_are_shown_escaped(bundle: Path) -> None:
    (bundle / "lib/a\x1b[2J\nb\x7f").write_text("")
    done = run(bundle / "bin/aima-engine", "--verify-bundle")
    assert done.returncode == 3
    assert "lib/a\\x1b[2J\\x0ab\\x7f: is not in the list\n" in done.stdout


@pytest.mark.parametrize(
    "script", ['"$0" --verify-bundle >&-; echo "$?" >&2', '{ "$0" --verify-bundle; echo "$?" >&2; } | :']
)
def test_a_verdict_that_cannot_be_written_is_an_error(script: str, bundle: Path) -> None:
    done = run("/bin/sh", "-c", script, str(bundle / "bin/aima-engine"))
    assert done.stderr.startswith("error: stdout: the output cannot be written\n  why: ")
    assert done.stderr.endswith("\n1\n")


def test_a_list_without_end(bundle: Path) -> None:
    (bundle / "share/aima/manifest.txt").write_bytes(b"x" * (17 << 20))
    done = run(bundle / "bin/aima-engine", "--verify-bundle")
    assert done.returncode == 1
    assert "too long" in done.stderr
