"""A small project on disk for tests of schema, plan, render and graph."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from aimabuild.plan import Plan, make_plan
from aimabuild.schema.project import Project, load_project

SCALE = """\
schema: aimabuild/template/v1
op: scale
compiler: triton
summary: y = 2 x
targets: [gfx1151, sm_90]
dtypes: [bf16]
outs: [bf16, f32]
dims: {n: {multiple_of: 16, min: 16}}
tile: {block: {choices: [64, 128, 256]}, num_warps: {choices: [1, 2, 4], default: 4}}
rules: [{require: "n % block == 0 or block <= 64", why: the loop has no tail}]
args:
  - {name: x, kind: pointer, dtype: dtype, divisibility: 16}
  - {name: y, kind: pointer, dtype: out, divisibility: 16}
  - {name: tokens, kind: i32}
constants: {N: n, BLOCK: block}
options: {num_warps: num_warps}
grid: [{var: tokens, div: 4}, {count: "ceil_div(n, block)"}]
sources: [model.md 3]
"""
SCALE_SOURCE = """\
def {{ symbol }}(x, y, tokens, N, BLOCK):
    return {{ BLOCK }}, {{ N }}
"""
MATMUL = """\
schema: aimabuild/template/v1
op: matmul
compiler: hip
summary: E = A B
targets: [gfx1151]
dtypes: [bf16]
dims: {n: {multiple_of: 16}, k: {multiple_of: 16}}
tile: {block_m: {choices: [16, 128]}}
args: [{name: args, kind: struct, size: 64}]
fill: true
sources: [model.md 3]
"""
MATMUL_SOURCE = 'extern "C" void {{ symbol }}() {} // {{ block_m }}\n'
MATMUL_HOST = 'extern "C" int {{ fill_symbol }}() { return {{ block_m }}; }\n'
SHAPES = """\
schema: aimabuild/shapes/v1
name: small
model: {hidden_size: 256, heads: 4}
kernels:
  - op: scale
    dims: {n: hidden_size}
    dtype: bf16
    templates:
      triton/scale:
        - {tokens: [1, 64], tile: {block: 64}, budget: {gfx1151: {spills: 0}}}
        - {tokens: [65, 8192], tile: {block: 128}}
  - op: matmul
    dims: [{n: hidden_size, k: heads * 16}, {n: 64, k: 64}]
    dtype: bf16
    templates:
      ck/matmul:
        - {tokens: [1, 8192], tile: {block_m: 128}}
"""
RECIPE = """\
schema: aimabuild/recipe/v1
name: small
summary: a small build
target: gfx1151
shapes: [shapes/small.yaml]
math: bf16
kernels:
  serve: {scale: triton/scale, matmul: ck/matmul}
bundle: {libc: bundled, runtime: none}
"""


@dataclass(frozen=True)
class Mini:
    """The project's root; files are edited by tests."""

    root: Path

    @classmethod
    def create(cls, root: Path) -> Mini:
        files = {
            "templates/triton/scale.yaml": SCALE,
            "templates/triton/scale.py.j2": SCALE_SOURCE,
            "templates/ck/matmul.yaml": MATMUL,
            "templates/ck/matmul.hip.j2": MATMUL_SOURCE,
            "templates/ck/matmul.host.cpp.j2": MATMUL_HOST,
            "shapes/small.yaml": SHAPES,
            "recipes/small.yaml": RECIPE,
        }
        for name, text in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (root / "native").mkdir()
        return cls(root)

    @property
    def recipe(self) -> Path:
        return self.root / "recipes/small.yaml"

    def edit(self, name: str, old: str, new: str) -> None:
        """Replace `old`, which must be there once, in the file `name`."""
        path = self.root / name
        text = path.read_text()
        assert text.count(old) == 1, (name, old, text.count(old))
        path.write_text(text.replace(old, new))

    def project(self) -> Project:
        return load_project(self.recipe, self.root)

    def plan(self) -> Plan:
        project = self.project()
        return make_plan(project.recipe, project.shapes, project.templates)
