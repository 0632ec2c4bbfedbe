"""The agent as a folder that transformers and vLLM load."""

import copy
from pathlib import Path

import torch
from tokenizers import Tokenizer
from transformers import (
    PreTrainedTokenizerFast,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2_5_VLProcessor,
    Qwen2VLVideoProcessor,
)

from .chat import PROCESSOR, SPECIAL
from .train import State

SHARD = "1900KB"
# What `Conversation` writes, for servers that are sent messages.
CHAT_TEMPLATE = """\
{%- for message in messages -%}
{{ '<|im_start|>' + message.role + '\n' }}
{%- if message.content is string -%}
{{ message.content }}
{%- else -%}
{%- for part in message.content -%}
{%- if part.type == 'text' -%}
{{ part.text }}
{%- else -%}
<|vision_start|><|image_pad|><|vision_end|>
{%- endif -%}
{%- endfor -%}
{%- endif -%}
{{ '<|im_end|>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|im_start|>assistant\n' }}
{%- endif -%}
"""


def save_agent(
    model: Qwen2_5_VLForConditionalGeneration,
    weights: State,
    step: int,
    tokenizer: Tokenizer,
    folder: Path,
) -> None:
    """Write the weights of a training step in bfloat16, with what is needed to run."""
    saved = copy.deepcopy(model)
    saved.load_state_dict(weights)
    saved.config.training_step = step
    saved.to(torch.bfloat16).save_pretrained(folder, max_shard_size=SHARD)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=SPECIAL[0],
        eos_token=SPECIAL[2],
        model_max_length=model.config.text_config.max_position_embeddings,
    )
    processor = Qwen2_5_VLProcessor(
        PROCESSOR,
        fast,
        Qwen2VLVideoProcessor(size=dict(PROCESSOR.size)),
        chat_template=CHAT_TEMPLATE,
    )
    processor.save_pretrained(folder)
    for path in folder.iterdir():
        path.chmod(0o644)  # safetensors writes files that only their owner reads


def load_agent(folder: Path) -> Qwen2_5_VLForConditionalGeneration:
    """Return the model in float32: the saved weights, and float32 arithmetic."""
    model = Qwen2_5_VLForConditionalGeneration.from_pretrained(
        folder, dtype=torch.float32
    )
    return model.eval()
