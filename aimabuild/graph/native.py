"""Edges of the native side: the engine, its unit tests, the Python module and the launcher."""

from __future__ import annotations

from pathlib import Path

from aimabuild.graph.layout import Layout
from aimabuild.graph.ninja_file import Edge, Rule, command_line, quote
from aimabuild.graph.tools import BindingTools, Tools
from aimabuild.schema.recipe import Recipe

# A file for one instruction set says so at the end of its name; the rest is for every x86-64.
ISA_FLAGS = {
    "_avx2": "-mavx2 -mfma -mf16c",
    "_avx512": "-mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma",
    "_avx512bf16": "-mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512bf16 -mfma",
    "_amx": "-mavx512f -mavx512bw -mavx512vl -mavx512bf16 -mamx-tile -mamx-bf16",
}
LAUNCHER_TARGET = "x86_64-linux-musl"
# Names of paths and times stay out of objects: the same sources give the same bytes anywhere.
_COMMON = "-g0 -Wall -Wextra -Werror -Wdate-time -ffunction-sections -fdata-sections"
_DEPENDENCIES = "-MD -MF $out.d -MT $out"
_WHOLE = "-o $out.tmp && mv -f $out.tmp $out"


def host_target(recipe: Recipe) -> str:
    """The target of host code: x86-64 with the recipe's oldest glibc."""
    return f"x86_64-linux-gnu.{recipe.engine.glibc}"


def prefix_maps(tools: Tools, root: Path) -> str:
    """Compiler flags that put short names in the place of this machine's folders."""
    return command_line(f"-ffile-prefix-map={folder}={name}" for folder, name in tools.prefixes(root))


def isa_flags(source: str) -> str:
    """Extra flags of a source file, by the end of its name."""
    stem = Path(source).stem
    return next((flags for suffix, flags in ISA_FLAGS.items() if stem.endswith(suffix)), "")


def native_rules(recipe: Recipe, tools: Tools, root: Path) -> list[Rule]:
    """Rules for C++ and C, archives and links."""
    zig, maps, host = quote(tools.zig), prefix_maps(tools, root), host_target(recipe)
    include = f"-Inative/src -Inative/include -isystem {quote(tools.boost_include)}"
    include += f" -isystem {quote(tools.native_include)}"
    cxx = f"{zig} c++ -target {host} -std=c++20 -O2 -fPIE {_COMMON} -fvisibility=hidden {include} {maps}"
    c = f"{zig} cc -target {LAUNCHER_TARGET} -std=c11 -Os {_COMMON} -Inative/include {maps}"
    libraries = command_line(tools.static_libraries)
    python = command_line(word for folder in tools.bindings.includes for word in ("-isystem", str(folder)))
    gc = "-Wl,--gc-sections"
    return [
        Rule("cxx", f"{cxx} $isa {_DEPENDENCIES} -c $in {_WHOLE}", "c++ $in", depfile="$out.d"),
        Rule(
            "archive", f"rm -f $out.tmp && {zig} ar rcsD $out.tmp $in && mv -f $out.tmp $out", "archive $out"
        ),
        Rule(
            "link",
            f"{zig} c++ -target {host} -pie {gc} -s $in {libraries} -ldl -lpthread {_WHOLE}",
            "link $out",
        ),
        Rule(
            "bindings_cxx",
            f"{cxx} -fPIC {python} {_DEPENDENCIES} -c $in {_WHOLE}",
            "c++ $in",
            depfile="$out.d",
        ),
        Rule(
            "bindings_link",
            f"{zig} c++ -target {host} -shared {gc} -s $in {libraries} -ldl -lpthread {_WHOLE}",
            "link $out",
        ),
        Rule("launcher_c", f"{c} {_DEPENDENCIES} -c $in {_WHOLE}", "c $in", depfile="$out.d"),
        Rule(
            "launcher_link", f"{zig} cc -target {LAUNCHER_TARGET} -static {gc} -s $in {_WHOLE}", "link $out"
        ),
    ]


def _sources(root: Path, folder: str, pattern: str) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in (root / folder).glob(pattern))


def _compile(layout: Layout, rule: str, sources: list[str], stamp: str) -> list[Edge]:
    return [
        Edge(
            rule,
            (layout.object_file(source),),
            (source,),
            (stamp,),
            {"isa": flags} if (flags := isa_flags(source)) else {},
        )
        for source in sources
    ]


def _binding_edges(layout: Layout, root: Path, tools: BindingTools | None) -> list[Edge]:
    """Edges of the Python module; none where Python's headers are missing."""
    if tools is None or tools.missing is not None:
        return []
    stamps = (layout.stamp("native"), layout.stamp("bindings"))
    sources = _sources(root, "native/bindings", "*.cpp")
    edges = [Edge("bindings_cxx", (layout.object_file(source),), (source,), stamps) for source in sources]
    inputs = (*(edge.outputs[0] for edge in edges), layout.core)
    return [*edges, Edge("bindings_link", (layout.bindings(tools.suffix),), inputs, stamps)] if edges else []


def native_edges(
    layout: Layout, root: Path, generated: list[str], bindings: BindingTools | None = None
) -> list[Edge]:
    """Edges for all of native/, found by the folders; `generated`: sources below the build folder."""
    stamp = layout.stamp("native")
    engine = [
        source for source in _sources(root, "native/src", "**/*.cpp") if not source.endswith("/main.cpp")
    ]
    core = _compile(layout, "cxx", [*engine, *generated], stamp)
    main = _compile(layout, "cxx", ["native/src/cli/main.cpp"], stamp)
    edges = [*core, *main]
    edges.append(Edge("archive", (layout.core,), tuple(edge.outputs[0] for edge in core), (stamp,)))
    edges.append(Edge("link", (layout.engine,), (main[0].outputs[0], layout.core), (stamp,)))
    tests = _compile(layout, "cxx", _sources(root, "native/tests", "*.cpp"), stamp)
    if tests:
        inputs = (*(edge.outputs[0] for edge in tests), layout.core)
        edges += [*tests, Edge("link", (layout.native_tests,), inputs, (stamp,))]
    edges += _binding_edges(layout, root, bindings)
    launcher = _compile(layout, "launcher_c", _sources(root, "native/launcher", "*.c"), stamp)
    if launcher:
        objects = tuple(edge.outputs[0] for edge in launcher)
        edges += [*launcher, Edge("launcher_link", (layout.launcher,), objects, (stamp,))]
    return edges
