"""Edges of the kernels: one compile for each object, the table, and the shared library that holds both."""

from __future__ import annotations

from pathlib import Path

from aimabuild.graph.layout import Layout
from aimabuild.graph.native import host_target, prefix_maps
from aimabuild.graph.ninja_file import Edge, Rule, command_line, quote
from aimabuild.graph.tools import Tools
from aimabuild.plan import Plan, PlannedObject
from aimabuild.render.spec import source_name
from aimabuild.schema.recipe import Recipe

_WHOLE = "-o $out.tmp && mv -f $out.tmp $out"
EXPORTED = "aima_kernels_v1"


def export_list() -> str:
    """The linker's version script: one symbol is visible."""
    return f"{{ global: {EXPORTED}; local: *; }};\n"


def _hip_flags(tools: Tools) -> str:
    words: list[str | Path] = []
    for option, path in (
        ("--zig", tools.zig),
        ("--zig-cache", tools.zig_cache),
        ("--resource-dir", tools.clang_resource_dir),
        ("--hip-root", tools.hip_root),
        ("--hip-include", tools.hip_include),
        ("--device-lib", tools.hip_device_lib),
        ("--ck-include", tools.ck_include),
    ):
        words += [option, path]
    return command_line(words)


def kernel_rules(recipe: Recipe, layout: Layout, tools: Tools, root: Path, digest: str) -> list[Rule]:
    """Rules for objects, table and library. `digest` is what the table calls its build."""
    python = f"{quote(tools.python)} -m aimabuild.compile"
    objdump = quote(command_line(tools.objdump))
    object_io = "--spec $dir/spec.json --out $dir/kernel.co --record $dir/record.json"
    cc = f"{quote(tools.zig)} cc -target {host_target(recipe)} -g0 -O2 -fPIC -Inative/include"
    cc += f" {prefix_maps(tools, root)}"
    table_c = f"{cc} -std=c11 -Wall -Wextra -Werror -MD -MF $out.d -MT $out -c $in {_WHOLE}"
    exports = f"-Wl,--version-script={layout.base}/kernels.map"
    soname = f"-Wl,-soname,{Path(layout.kernels_library).name}"
    link = f"{quote(tools.zig)} cc -target {host_target(recipe)} -shared -s -Wl,--no-undefined"
    link += f" {exports} {soname}"
    return [
        Rule(
            "triton",
            f"{python}.triton_aot {object_io} --triton-site {quote(tools.triton_site)} --objdump {objdump}",
            "compile $id",
            restat=True,
        ),
        Rule(
            "hip",
            f"{python}.hip {object_io} --depfile $dir/kernel.d {_hip_flags(tools)} --objdump {objdump}",
            "compile $id",
            depfile="$dir/kernel.d",
            restat=True,
        ),
        Rule(
            "hip_host",
            f"{python}.hip_host --source $in --out $out --depfile $out.d {_hip_flags(tools)}"
            f" --target {host_target(recipe)}",
            "c++ $in",
            depfile="$out.d",
            restat=True,
        ),
        Rule(
            "table",
            f"{python}.table --target {layout.target} --build {digest} $inputs --out-c {layout.base}/table.c"
            f" --out-s {layout.base}/images.S --out-json {layout.kernels_json}",
            "table of kernels",
            restat=True,
        ),
        Rule("table_c", table_c, "c $in", "$out.d"),
        Rule("images", f"{cc} -I{layout.kernels} -c $in {_WHOLE}", "assemble $in"),
        Rule("kernels_link", f"{link} $in {_WHOLE}", "link $out"),
    ]


def _object_edges(layout: Layout, item: PlannedObject) -> list[Edge]:
    folder = f"{layout.kernels}/{item.id}"
    compiler = item.template.compiler
    stamps = (layout.stamp(compiler), layout.stamp("scripts"))
    outputs = (layout.code_object(item.id), layout.record(item.id))
    inputs = (f"{folder}/spec.json", f"{folder}/{source_name(item)}")
    edges = [Edge(compiler, outputs, inputs, stamps, {"dir": folder, "id": item.id})]
    if item.fill_symbol is not None:
        edges.append(Edge("hip_host", (f"{folder}/host.o",), (f"{folder}/host.cpp",), stamps))
    return edges


def kernel_edges(layout: Layout, plan: Plan) -> list[Edge]:
    """Edges for every object of a plan and for its library; none when the plan has no kernels."""
    if not plan.kernels:
        return []
    edges = [edge for item in plan.objects for edge in _object_edges(layout, item)]
    specs = tuple(f"{layout.kernels}/{kernel.id}/spec.json" for kernel in plan.kernels)
    records = tuple(layout.record(item.id) for item in plan.objects)
    words = [word for path in specs for word in ("--spec", path)]
    words += [word for path in records for word in ("--record", path)]
    images = tuple(layout.code_object(item.id) for item in plan.objects)
    base = layout.base
    edges.append(
        Edge(
            "table",
            (f"{base}/table.c", f"{base}/images.S", layout.kernels_json),
            (),
            (*specs, *records, *images, layout.stamp("scripts")),
            {"inputs": command_line(words)},
        )
    )
    native = layout.stamp("native")
    edges.append(Edge("table_c", (f"{base}/table.o",), (f"{base}/table.c",), (native,)))
    edges.append(Edge("images", (f"{base}/images.o",), (f"{base}/images.S",), (*images, native)))
    hosts = tuple(f"{layout.kernels}/{item.id}/host.o" for item in plan.objects if item.fill_symbol)
    inputs = (f"{base}/table.o", f"{base}/images.o", *hosts)
    edges.append(Edge("kernels_link", (layout.kernels_library,), inputs, (native, f"{base}/kernels.map")))
    return edges
