"""Makes a model of Llama's shape that a CPU runs in no time, with a tokenizer, and LoRA adapters for it; all of random numbers.

    models.py FOLDER     makes FOLDER/tiny, FOLDER/sql, FOLDER/tax and FOLDER/law
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

LAYERS, HIDDEN, HEAD = 2, 128, 64
ADAPTERS = ["sql", "tax", "law"]
RANK = 8
TEXT = "what do pods pull and when does a request that waits for its turn at the weir flow on to one of them"

# A user's words, then the answer's; an answer that is to be gone on from stays open.
CHAT = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message['role'] == 'assistant' %}<answer>{{ message['content'] }}"
    "{% if not (loop.last and continue_final_message) %}</s>{% endif %}"
    "{% else %}<ask>{{ message['content'] }}</s>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<answer>{% endif %}"
)


def tokenizer() -> PreTrainedTokenizerFast:
    """One of bytes and the words of a sentence."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<s>", "</s>", "<ask>", "<answer>"]
    trainer = trainers.BpeTrainer(vocab_size=512, special_tokens=special, initial_alphabet=alphabet)
    made.train_from_iterator([TEXT] * 10, trainer)
    whole = PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>", eos_token="</s>", pad_token="</s>")
    whole.chat_template = CHAT
    return whole


def model(words: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """One that says only what is text by itself: a byte of a character alone would be shown with the next ones."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=512, hidden_size=HIDDEN, intermediate_size=2 * HIDDEN, num_hidden_layers=LAYERS,
        num_attention_heads=HIDDEN // HEAD, num_key_value_heads=1, head_dim=HEAD, max_position_embeddings=8192,
        bos_token_id=0, eos_token_id=1, tie_word_embeddings=False,
    )
    made = LlamaForCausalLM(config).to(torch.bfloat16)
    plain = [token for token in range(4, len(words)) if words.decode([token]).isascii() and words.decode([token]).isprintable()]
    mute = torch.ones(512, dtype=torch.bool)
    mute[plain] = False
    with torch.no_grad():
        # The others differ by a lot, so that some of them are always far above these.
        made.lm_head.weight *= 30
        made.lm_head.weight[mute] = 0
    return made


def adapter(folder: Path, seed: int) -> None:
    """A LoRA adapter in the form of PEFT."""
    folder.mkdir(parents=True)
    torch.manual_seed(seed)
    weights = {}
    for layer in range(LAYERS):
        for part, out in (("q_proj", HIDDEN), ("v_proj", HEAD)):
            name = f"base_model.model.model.layers.{layer}.self_attn.{part}"
            weights[f"{name}.lora_A.weight"] = torch.randn(RANK, HIDDEN) * 0.1
            weights[f"{name}.lora_B.weight"] = torch.randn(out, RANK) * 0.1
    save_file(weights, folder / "adapter_model.safetensors")
    config = {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": RANK, "lora_alpha": 2 * RANK, "lora_dropout": 0.0,
        "target_modules": ["q_proj", "v_proj"], "bias": "none", "base_model_name_or_path": "tiny", "inference_mode": True,
    }
    (folder / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")


def main(folder: Path) -> None:
    words = tokenizer()
    words.save_pretrained(folder / "tiny")
    model(words).save_pretrained(folder / "tiny")
    for seed, name in enumerate(ADAPTERS, start=1):
        adapter(folder / name, seed)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
