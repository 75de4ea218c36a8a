"""A toolchain of one shell script: it writes outputs that follow from all inputs, and logs what it ran.

As a compiler it hashes sources, as `python -m aimabuild.compile.X` it makes code objects and records. Files
beside the script steer it: `slow` makes each compile of a kernel stop half-way through its output for so many
seconds, `fail` (a code) makes it fail.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from mini import Mini

from aimabuild.base.errors import AimaError
from aimabuild.base.reporter import Reporter
from aimabuild.compile.record import Record, record_bytes
from aimabuild.compile.resources import Resources
from aimabuild.graph import BuildResult, Tools, build_plan
from aimabuild.graph.tools import BindingTools

SCRIPT = r"""#!/bin/sh
here='@HERE@'
out= dep= spec= record= module= json= c= s= inputs= all="$*"
mode=$1
while [ $# -gt 0 ]; do
  case "$1" in
    -o|--out) out=$2; shift ;;
    --record) record=$2; inputs="$inputs $2"; shift ;;
    --spec) spec=$2; inputs="$inputs $2"; shift ;;
    -m) module=$2; shift ;;
    -MF|--depfile) dep=$2; shift ;;
    -MT) shift ;;
    --out-c) c=$2; shift ;;
    --out-s) s=$2; shift ;;
    --out-json) json=$2; shift ;;
    --source) inputs="$inputs $2"; shift ;;
    *.cpp|*.c|*.S|*.o|*.a) [ -f "$1" ] && inputs="$inputs $1" ;;
  esac
  shift
done
case "$mode" in
  clang) echo "clang version 9.8.7"; exit 0 ;;
  ar) out=$(echo "$all" | cut -d' ' -f3) ;;
esac
echo "${module:-$mode} $(basename "${out:-$c}" .tmp) $(dirname "${out:-$c}")" >> "$here/log"
hash() { cat "$@" | sha256sum | cut -c1-16; }
put() { [ -f "$2" ] && [ "$(cat "$2")" = "$1" ] || { echo "$1" > "$2.new"; mv "$2.new" "$2"; }; }
case "$module" in
  *.triton_aot|*.hip)
    if [ -f "$here/fail" ]; then
      for i in $(seq 60); do echo "compiler line $i"; done
      exit "$(cat "$here/fail")"
    fi
    source=$(dirname "$spec")/kernel.py; [ -f "$source" ] || source=$(dirname "$spec")/kernel.hip
    sum=$(hash "$spec" "$source")
    [ -n "$dep" ] && echo "$out: $source" > "$dep"
    if [ -f "$here/slow" ]; then
      printf 'half of ' > "$out"
      touch "$here/started"
      sleep "$(cat "$here/slow")"
      printf 'an object' >> "$out"
    fi
    put "object $sum" "$out"; put "$(sed "s/@SUM@/$sum/" "$here/record")" "$record" ;;
  *.table)
    sum=$(hash $inputs); put "table $sum" "$c"; put "images $sum" "$s"; put "json $sum" "$json" ;;
  *)
    headers=
    for i in $inputs; do
      case "$i" in *.cpp|*.c)
        headers="$headers $(sed -n 's/^#include "\(.*\)"/native\/src\/\1/p' "$i")" ;;
      esac
    done
    [ -n "$dep" ] && echo "${out%.tmp}: $inputs" $headers | tr -s ' ' > "$dep"
    hash $inputs $headers > "$out" ;;
esac
"""
RECORD = Record(
    id="k",
    sha256="@SUM@",
    bytes=1,
    symbol="s",
    kernarg_size=0,
    args=(),
    block=(128, 1, 1),
    lds_bytes=0,
    wave_size=32,
    resources=Resources(24, 10, 0, 0, 0, 0, 0, 4, 16, "waves", 0, None, 100),
    compiler="fake",
)
NATIVE = {
    "native/src/cli/main.cpp": '#include "base/name.h"\nint main() {}\n',
    "native/src/base/name.cpp": '#include "base/name.h"\n',
    "native/src/base/name.h": "// a header\n",
    "native/src/base/build_info.h": "// the build's facts\n",
    "native/src/base/sum_avx2.cpp": "// AVX2\n",
    "native/tests/main.cpp": "int main() {}\n",
    "native/bindings/module.cpp": "int module;\n",
    "native/launcher/main.c": "int main(void) { return 0; }\n",
}


class Lines(Reporter):
    """A reporter that keeps its lines."""

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.lines: list[str] = []

    def line(self, text: str) -> None:
        self.lines.append(text)

    def warn(self, text: str) -> None:
        self.lines.append(f"warning: {text}")


@dataclass(frozen=True)
class Fake:
    """A mini project with native sources and the fake toolchain."""

    mini: Mini
    folder: Path

    @classmethod
    def create(cls, mini: Mini, folder: Path) -> Fake:
        for name, text in NATIVE.items():
            path = mini.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        folder.mkdir()
        script = folder / "tool"
        script.write_text(SCRIPT.replace("@HERE@", str(folder)))
        script.chmod(0o755)
        (folder / "record").write_text(record_bytes(RECORD).decode())
        (folder / "packages/aimabuild/compile").mkdir(parents=True)
        (folder / "packages/aimabuild/compile/triton_aot.py").write_text("VERSION = 1\n")
        return cls(mini, folder)

    def tools(self, no_headers: AimaError | None = None) -> Tools:
        tool = self.folder / "tool"
        return Tools(
            python=tool,
            packages=self.folder / "packages",
            zig=tool,
            zig_cache=self.folder / "zig",
            boost_include=self.folder / "boost",
            native_include=self.folder / "include",
            static_libraries=(),
            triton_site=self.folder / "triton",
            clang_resource_dir=self.folder / "clang",
            hip_root=self.folder / "hip",
            hip_include=self.folder / "hip/include",
            hip_device_lib=self.folder / "hip/lib",
            ck_include=self.folder / "ck",
            objdump=("objdump",),
            digest="0" * 64,
            part_digests={"ziglang": "ziglang-1", "triton": "triton-1", "hip-dev": "hip-dev-1"},
            zig_version="1.2.3",
            libraries=(("Boost", "1.0"),),
            overrides={},
            bindings=BindingTools((self.folder / "python",), no_headers, ".so"),
        )

    def build(
        self, *targets: str, tools: Tools | None = None, why: bool = False
    ) -> tuple[BuildResult, list[str], list[str]]:
        """Build; returns the result, what the tools ran, and the reporter's lines."""
        (self.folder / "log").write_text("")
        reporter = Lines()
        project, plan = self.mini.project(), self.mini.plan()
        result = build_plan(project, plan, tools or self.tools(), reporter, targets=targets, why=why, jobs=2)
        return result, self.log(), reporter.lines

    def log(self) -> list[str]:
        """What the tools ran, one line each: kind, output, folder."""
        return (self.folder / "log").read_text().splitlines()

    def outputs(self) -> dict[str, str]:
        """Every file that the build made, without what differs by design (logs, depfiles, ninja's own)."""
        base = self.mini.root / "build/small"
        skipped = (".ninja_log", ".ninja_deps", ".lock", "build.ninja", "failed.log")
        return {
            path.relative_to(base).as_posix(): path.read_text()
            for path in sorted(base.rglob("*"))
            if path.is_file() and path.name not in skipped
        }


if __name__ == "__main__":  # a build in a process of its own, to be killed
    root, folder = Path(sys.argv[1]), Path(sys.argv[2])
    Fake(Mini(root), folder).build()
