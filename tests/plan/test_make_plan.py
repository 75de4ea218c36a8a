"""aimabuild.plan: what is built, what is shared, what is refused."""

from __future__ import annotations

import pytest
from mini import Mini

from aimabuild.base.errors import UsageError
from aimabuild.plan import PlannedAxis

SHAPES = "shapes/small.yaml"
RECIPE = "recipes/small.yaml"
SCALE = "templates/triton/scale.yaml"
SCALE_SOURCE = "templates/triton/scale.py.j2"


def test_kernels_and_objects(mini: Mini) -> None:
    plan = mini.plan()
    assert [kernel.name for kernel in plan.kernels] == [
        "scale-triton-n256-bf16-t1",
        "scale-triton-n256-bf16-t65",
        "matmul-ck-n256-k64-bf16-t1",
        "matmul-ck-n64-k64-bf16-t1",
    ]
    assert [item.symbol for item in plan.objects] == [
        "aima_scale_triton_n256_bf16_t1",
        "aima_scale_triton_n256_bf16_t65",
        "aima_matmul_ck_bf16",
    ]
    first, second, third, fourth = plan.kernels
    assert first.id == first.object == plan.objects[0].id
    assert third.object == fourth.object == plan.objects[2].id
    assert len({first.id, second.id, third.id, fourth.id, third.object}) == 5
    assert first.grid == (
        PlannedAxis("tokens", 1, 0, 4),
        PlannedAxis("one", 4, 0, 1),
        PlannedAxis("one", 1, 0, 1),
    )
    assert third.grid is None
    assert plan.objects[0].constants == {"N": 256, "BLOCK": 64}
    assert plan.objects[0].options == {"num_warps": 4}
    assert plan.objects[2].dims == {}
    assert plan.objects[2].fill_symbol == f"aima_fill_matmul_ck_{plan.objects[2].key[:8]}"


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        (SHAPES, "tile: {block: 64}", "tile: {block: 64, num_warps: 2}"),
        (SHAPES, "tile: {block: 64}", "tile: {block: 128}"),
        (SHAPES, "hidden_size: 256", "hidden_size: 512"),
        (SCALE_SOURCE, "return", "return  "),
        (SCALE, "BLOCK: block}", "BLOCK: block, EXTRA: block * 2}"),
        (SCALE, "options: {num_warps: num_warps}", "options: {num_warps: 1}"),
        (
            SCALE,
            "{name: x, kind: pointer, dtype: dtype, divisibility: 16}",
            "{name: x, kind: pointer, dtype: dtype}",
        ),
        (SCALE, "{name: tokens, kind: i32}", "{name: tokens, kind: i64}"),
        (SCALE, "{name: tokens, kind: i32}", "{name: count, kind: i32}"),
        (
            SHAPES,
            "{tokens: [1, 64], tile: {block: 64}, budget: {gfx1151: {spills: 0}}}",
            "{tokens: [2, 64], tile: {block: 64}}\n        - {tokens: [1, 1], tile: {block: 64}}",
        ),
    ],
)
def test_any_change_of_an_input_changes_the_object_and_the_digest(
    mini: Mini, file: str, old: str, new: str
) -> None:
    before = mini.plan()
    mini.edit(file, old, new)
    after = mini.plan()
    kept = {item.id: item.key for item in before.objects}
    changed = after.objects[0]
    assert changed.key not in kept.values()
    assert changed.id not in kept
    assert before.digest != after.digest
    assert after.objects[-1].key == before.objects[-1].key  # the other template's object is untouched


def test_a_tile_that_only_the_text_uses_changes_the_object(mini: Mini) -> None:
    before = mini.plan().objects[2]
    mini.edit(SHAPES, "{block_m: 128}", "{block_m: 16}")
    after = mini.plan().objects[2]
    assert after.symbol == before.symbol
    assert after.key != before.key


def test_comments_and_places_change_nothing(mini: Mini) -> None:
    before = mini.plan()
    for name in (SHAPES, "templates/triton/scale.yaml", "recipes/small.yaml"):
        path = mini.root / name
        path.write_text("# a comment\n\n" + path.read_text())
    after = mini.plan()
    assert [item.key for item in after.objects] == [item.key for item in before.objects]
    assert after.digest == before.digest


def test_the_target_is_part_of_the_key(mini: Mini) -> None:
    mini.edit(
        "recipes/small.yaml",
        "serve: {scale: triton/scale, matmul: ck/matmul}",
        "serve: {scale: triton/scale}",
    )
    text = (mini.root / "shapes/small.yaml").read_text()
    (mini.root / "shapes/small.yaml").write_text(text[: text.index("  - op: matmul")])
    before = mini.plan()
    mini.edit(RECIPE, "target: gfx1151", "target: sm_90")
    assert not {item.key for item in before.objects} & {item.key for item in mini.plan().objects}


ERRORS = [
    # (file, old, new, where, part of the message)
    (SHAPES, "[65, 8192]", "[66, 8192]", "shapes/small.yaml:9:7", "no variant serves 65 to 65"),
    (SHAPES, "[65, 8192]", "[65, 8191]", "shapes/small.yaml:9:7", "no variant serves 8192 to 8192"),
    (SHAPES, "[1, 64]", "[2, 64]", "shapes/small.yaml:9:7", "no variant serves 1 to 1"),
    (
        SHAPES,
        "[65, 8192]",
        "[64, 8192]",
        "shapes/small.yaml:11:11",
        "[64, 8192] and [1, 64] at shapes/small.yaml:10:11 overlap",
    ),
    (SHAPES, "{block: 128}", "{block: 96}", "shapes/small.yaml:11:39", "must be one of 64, 128, 256"),
    (SHAPES, "{block: 128}", "{blok: 128}", "shapes/small.yaml:11:39", "did you mean `block`?"),
    (SHAPES, "{block: 128}", "{}", "shapes/small.yaml:11:38", "needs the tile parameter `block`"),
    (
        SHAPES,
        "hidden_size: 256",
        "hidden_size: 250",
        "shapes/small.yaml:6:12",
        "must be a multiple of 16 (templates/triton/scale.yaml:8:11)",
    ),
    (
        SHAPES,
        "hidden_size: 256",
        "hidden_size: 272",
        "shapes/small.yaml:11:11",
        "the loop has no tail (block = 128, n = 272; rule at templates/triton/scale.yaml:10:19)",
    ),
    (
        SHAPES,
        "dims: {n: hidden_size}",
        "dims: {m: hidden_size}",
        "shapes/small.yaml:6:12",
        "its dimensions: n (templates/triton/scale.yaml)",
    ),
    (SHAPES, "dims: {n: hidden_size}", "dims: {n: 256, z: 1}", "shapes/small.yaml:6:20", "no dimension `z`"),
    (
        SHAPES,
        "dims: {n: hidden_size}",
        "dims: {n: hidden_sise}",
        "shapes/small.yaml:6:15",
        "did you mean `hidden_size`?",
    ),
    (
        SHAPES,
        "[{n: hidden_size, k: heads * 16}, {n: 64, k: 64}]",
        "[{n: 64, k: 64}, {n: 64, k: 64}]",
        "shapes/small.yaml:13:28",
        "stands twice",
    ),
    (
        SHAPES,
        "- op: scale",
        "- op: scael",
        "recipes/small.yaml:8:3",
        "names no template for the operation `scael`",
    ),
    (
        SCALE,
        "targets: [gfx1151, sm_90]",
        "targets: [sm_90]",
        "shapes/small.yaml:9:7",
        "cannot be compiled for gfx1151",
    ),
    (SCALE, "dtypes: [bf16]", "dtypes: [f32]", "shapes/small.yaml:9:7", "no bf16 inputs"),
    (
        RECIPE,
        "matmul: ck/matmul}",
        "matmul: triton/scale}",
        "shapes/small.yaml:13:12",
        "offers none of `triton/scale`",
    ),
    (
        RECIPE,
        "matmul: ck/matmul}",
        "matmul: ck/matmul}\n  alternatives: [triton/scales]",
        "recipes/small.yaml:8:3",
        "did you mean `triton/scale`?",
    ),
    (
        SHAPES,
        "tile: {block_m: 128}}",
        "tile: {block_m: 128}, targets: [sm_90]}",
        "shapes/small.yaml:16:7",
        "no variant serves 1 to 8192",
    ),
]


@pytest.mark.parametrize(("file", "old", "new", "where", "message"), ERRORS)
def test_what_cannot_be_built_is_refused_with_its_place(
    mini: Mini, file: str, old: str, new: str, where: str, message: str
) -> None:
    text = (mini.root / file).read_text()
    (mini.root / file).write_text(text.replace(old, new, 1))
    with pytest.raises(UsageError) as caught:
        mini.plan()
    assert message in str(caught.value)
    assert (caught.value.where or "").startswith(where), caught.value
    assert caught.value.exit_code == 2


def test_one_object_with_two_budgets_is_refused(mini: Mini) -> None:
    path = mini.root / "shapes/small.yaml"
    second = (
        path.read_text()
        .split("  - op: matmul")[1]
        .replace("[{n: hidden_size, k: heads * 16}, {n: 64, k: 64}]", "{n: 32, k: 32}")
    )
    path.write_text(
        path.read_text() + "  - op: matmul" + second.replace("128}}", "128}, budget: {gfx1151: {spills: 0}}}")
    )
    with pytest.raises(UsageError, match=r"one object .* has two budgets"):
        mini.plan()


def test_alternatives_may_leave_holes_and_stand_beside_the_primary(mini: Mini) -> None:
    for name in ("yaml", "py.j2"):
        text = (mini.root / f"templates/triton/scale.{name}").read_text()
        (mini.root / f"templates/triton/scale2.{name}").write_text(text)
    mini.edit(RECIPE, "ck/matmul}", "ck/matmul}\n  alternatives: [triton/scale2]")
    mini.edit(
        "shapes/small.yaml",
        "{tokens: [65, 8192], tile: {block: 128}}\n",
        "{tokens: [65, 8192], tile: {block: 128}}\n"
        "      triton/scale2:\n        - {tokens: [7, 9], tile: {block: 256}}\n",
    )
    kernels = mini.plan().kernels
    assert [(k.template, k.primary, k.tokens) for k in kernels[:3]] == [
        ("triton/scale", True, (1, 64)),
        ("triton/scale", True, (65, 8192)),
        ("triton/scale2", False, (7, 9)),
    ]


def test_a_preference_list_takes_the_first_that_a_shape_offers(mini: Mini) -> None:
    mini.edit(RECIPE, "scale: triton/scale,", "scale: [ck/matmul, triton/scale],")
    assert mini.plan().kernels[0].template == "triton/scale"


def test_a_recipe_without_target_has_no_kernels(mini: Mini) -> None:
    text = (mini.root / "recipes/small.yaml").read_text()
    start, end = text.index("kernels:"), text.index("bundle:")
    text = (text[:start] + text[end:]).replace("gfx1151", "none").replace("shapes: [shapes/small.yaml]\n", "")
    (mini.root / "recipes/small.yaml").write_text(text)
    plan = mini.plan()
    assert (plan.target, plan.kernels, plan.objects) == (None, (), ())
