"""The model as Hugging Face transformers computes it, on the CPU: logits, caches, routing and layer traces.

transformers has no code for the draft head (mtp.*): it is put together here from transformers' modules and
wired as published engines do: the embedding of the next token and the hidden state after the final norm, each
normed, side by side through `fc`, then one full-attention layer, `mtp.norm` and the model's own head.

Shapes: T prompt tokens, H hidden, V vocabulary, L layers, E experts, k experts per token.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, Qwen3_5MoeTextConfig
from transformers.models.qwen3_5_moe import modeling_qwen3_5_moe as modules

EAGER = {"attn_implementation": "eager", "experts_implementation": "eager"}


@dataclass(frozen=True)
class Pass:
    """One forward pass: logits [T, V], hidden [T, H] after the final norm, and the cache so far."""

    logits: torch.Tensor
    hidden: torch.Tensor
    cache: Any


@dataclass(frozen=True)
class Greedy:
    """A prompt and N greedy tokens after it; `rows` [N, V] are the logits that each token came from."""

    prompt: Pass
    trace: dict[str, torch.Tensor]
    state: dict[str, torch.Tensor]
    tokens: list[int]
    rows: torch.Tensor
    router_gap: float
    token_gap: float


class Reference:
    """One checkpoint folder as a transformers model."""

    def __init__(self, folder: Path, dtype: torch.dtype = torch.float32) -> None:
        """Load through the public entry point; RuntimeError when names or shapes do not fit the class."""
        self.model, report = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, output_loading_info=True, **EAGER
        )
        odd = {kind: sorted(keys) for kind, keys in report.items() if keys}
        if all(name.startswith("mtp.") for name in odd.get("unexpected_keys", [])):
            odd.pop("unexpected_keys", None)  # the class leaves the draft head out
        if odd:
            raise RuntimeError(f"{folder}: transformers does not take it as it is: {odd}")
        self.model.eval()
        self.config: Qwen3_5MoeTextConfig = self.model.config
        self.folder = folder

    def forward(self, ids: list[int], cache: Any = None) -> Pass:
        """One pass over `ids`, continuing from `cache`, which it changes."""
        out = self.model.model(input_ids=torch.tensor([ids]), cache=cache, use_cache=True)
        hidden = out.last_hidden_state
        return Pass(self.model.lm_head(hidden)[0], hidden[0], out.cache)

    def greedy(self, ids: list[int], count: int) -> Greedy:
        """The prompt in one pass, then `count` tokens one at a time, each the first of the highest logits."""
        tokens: list[int] = []
        rows: list[torch.Tensor] = []
        with self.traced() as seen:
            prompt = self.forward(ids)
            trace, state = dict(seen), self.cache_arrays(prompt.cache)
            gap = self.router_margin(trace).min()
            row = prompt.logits[-1]
            for _ in range(count):
                rows.append(row)
                tokens.append(int(row.argmax()))
                row = self.forward(tokens[-1:], prompt.cache).logits[-1]
                gap = torch.minimum(gap, self.router_margin(seen).min())
        logits = torch.stack(rows)
        return Greedy(prompt, trace, state, tokens, logits, float(gap), float(lead(logits).min()))

    def router_margin(self, trace: dict[str, torch.Tensor]) -> torch.Tensor:
        """[L, T]: how far the last expert chosen lies above the first one left out, in router logits."""
        chosen = self.config.num_experts_per_tok
        layers = [trace[f"l{layer}.router_logits"].float() for layer in range(self.config.num_hidden_layers)]
        best = torch.stack(layers).topk(chosen + 1, dim=-1).values
        return best[..., chosen - 1] - best[..., chosen]

    def cache_arrays(self, cache: Any) -> dict[str, torch.Tensor]:
        """Copies of the state: K [Hkv, T, D] after RoPE, V, delta state [Hv, Dk, Dv], conv inputs [C, 3]."""
        arrays: dict[str, torch.Tensor] = {}
        tail = (
            self.config.linear_conv_kernel_dim - 1
        )  # the class keeps one column more, which nothing reads again
        for index, kind in enumerate(self.config.layer_types):
            layer = cache.layers[index]
            if kind == "full_attention":
                arrays[f"l{index}.k_cache"] = layer.keys[0].clone()
                arrays[f"l{index}.v_cache"] = layer.values[0].clone()
            else:
                arrays[f"l{index}.gdn_state"] = layer.recurrent_states[0][0].clone()
                arrays[f"l{index}.conv_state"] = layer.conv_states[0][0][:, -tail:].clone()
        return arrays

    def rope(self, positions: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """cos and sin [positions, rotary dims] at text positions."""
        at = torch.tensor(positions).view(1, 1, -1).expand(3, 1, -1)
        cos, sin = self.model.model.rotary_emb(torch.zeros(1), at)
        return cos[0], sin[0]

    @contextmanager
    def traced(self) -> Iterator[dict[str, torch.Tensor]]:
        """The arrays of the latest pass: embed, final_norm, and per layer its inputs, outputs and routing."""
        seen: dict[str, torch.Tensor] = {}
        hooks: list[Any] = []

        def watch(module: torch.nn.Module, name: str) -> None:
            def keep(_module: Any, _inputs: Any, output: Any) -> None:
                value = output[0] if isinstance(output, tuple) else output
                seen[name] = value.detach().reshape(-1, value.shape[-1]).clone()

            hooks.append(module.register_forward_hook(keep))

        def watch_router(module: torch.nn.Module, prefix: str) -> None:
            def keep(_module: Any, _inputs: Any, output: Any) -> None:
                logits, weights, chosen = output
                seen[f"{prefix}.router_logits"] = logits.clone()
                seen[f"{prefix}.topk_w"] = weights.clone()
                seen[f"{prefix}.topk_idx"] = chosen.to(torch.int32)

            hooks.append(module.register_forward_hook(keep))

        body = self.model.model
        watch(body.embed_tokens, "embed")
        watch(body.norm, "final_norm")
        for index, layer in enumerate(body.layers):
            linear = self.config.layer_types[index] == "linear_attention"
            watch(layer.input_layernorm, f"l{index}.mixer_in")
            watch(layer.linear_attn if linear else layer.self_attn, f"l{index}.mixer_out")
            watch(layer.post_attention_layernorm, f"l{index}.moe_in")
            watch(layer.mlp, f"l{index}.moe_out")
            watch_router(layer.mlp.gate, f"l{index}")
            watch(layer, f"l{index}.out")
        try:
            yield seen
        finally:
            for hook in hooks:
                hook.remove()


class DraftHead:
    """The checkpoint's mtp.* tensors in transformers' modules, in f32."""

    def __init__(self, reference: Reference) -> None:
        """Read the 19 tensors from the folder of `reference`, whose embedding and head it shares."""
        self.base = reference.model
        config = copy.deepcopy(reference.config)
        config.layer_types, config.num_hidden_layers = ["full_attention"], 1
        width, eps = config.hidden_size, config.rms_norm_eps
        norms = ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden")
        self.parts = torch.nn.ModuleDict(
            {
                "fc": torch.nn.Linear(2 * width, width, bias=False),
                "layer": modules.Qwen3_5MoeDecoderLayer(config, 0),
                **{name: modules.Qwen3_5MoeRMSNorm(width, eps=eps) for name in norms},
            }
        )
        stored = load_file(reference.folder / "model.safetensors")
        values = {
            name.removeprefix("mtp.").replace("layers.0.", "layer."): value.float()
            for name, value in stored.items()
            if name.startswith("mtp.")
        }
        self.parts.load_state_dict(values, strict=True)
        self.parts.eval()

    def logits(self, ids: list[int], hidden: torch.Tensor) -> torch.Tensor:
        """[T - 1, V]: row t sees hidden state t and token t + 1, and scores token t + 2."""
        count = len(ids) - 1
        following = self.base.model.embed_tokens(torch.tensor([ids[1:]]))
        embedding = self.parts["pre_fc_norm_embedding"](following)
        state = self.parts["pre_fc_norm_hidden"](hidden[None, :count])
        x = self.parts["fc"](torch.cat((embedding, state), dim=-1))
        positions = torch.arange(count).view(1, 1, count).expand(3, 1, count)
        later = torch.ones(count, count, dtype=torch.bool).triu(1)
        mask = torch.zeros(count, count).masked_fill(later, torch.finfo(torch.float32).min)
        rotary = self.base.model.rotary_emb(x, positions)
        x = self.parts["layer"](x, position_embeddings=rotary, attention_mask=mask[None, None])
        scores: torch.Tensor = self.base.lm_head(self.parts["norm"](x))[0]
        return scores


def lead(logits: torch.Tensor) -> torch.Tensor:
    """How far each row's highest logit lies above the second."""
    best = logits.topk(2, dim=-1).values
    return best[..., 0] - best[..., 1]
