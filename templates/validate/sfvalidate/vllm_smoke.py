"""Does vLLM load a model and generate on the GPU that is here?

The model is a two-layer Llama of random weights whose config.json is written on the spot; prompts
are token numbers, so that there is no tokenizer; nothing is downloaded. Its text means nothing:
what is tested is that the engine starts, schedules, runs its kernels and gives every token asked
for. The rate is of this tiny model, in eager mode: it compares images, not models.
"""

import importlib.util
import json
import os
import time

LIMIT = 900
ISOLATED = True
PROMPTS, PROMPT_TOKENS, NEW_TOKENS = 8, 16, 32
VOCABULARY = 1024
MEMORY_BYTES = 4 << 30
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "float16", "hidden_act": "silu",
    "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 64, "vocab_size": VOCABULARY, "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "initializer_range": 0.02, "tie_word_embeddings": False,
    "bos_token_id": 1, "eos_token_id": 2, "use_cache": True,
}
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_DO_NOT_TRACK": "1",
    # One process: its failure is then this process's, with its message.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
}


def obstacle(spec, device):
    if importlib.util.find_spec("vllm") is None:
        return "failed", "vllm is not installed"
    if not device.get("gpu"):
        return "not-run", device["no_gpu"]
    return None


def facts(spec, device):
    return {"model": "Llama, 2 layers, width 256, random weights", "prompts": PROMPTS, "new_tokens": NEW_TOKENS}


def units(spec, device):
    return ["generate"]


def run(unit, job):
    os.environ.update(ENVIRONMENT, VLLM_CACHE_ROOT=os.path.join(os.environ["TMPDIR"], "vllm"))
    job.step("importing vllm")
    import torch
    from vllm import LLM, SamplingParams

    folder = os.path.join(os.environ["TMPDIR"], "model")
    os.mkdir(folder)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(CONFIG, file)
    memory = torch.cuda.get_device_properties(0).total_memory
    job.step("starting vllm's engine")
    engine = LLM(model=folder, skip_tokenizer_init=True, load_format="dummy", dtype="float16", max_model_len=256,
                 enforce_eager=True, gpu_memory_utilization=max(0.05, min(0.5, MEMORY_BYTES / memory)), seed=0)
    sampling = SamplingParams(temperature=0.0, max_tokens=NEW_TOKENS, ignore_eos=True, detokenize=False)
    prompts = [{"prompt_token_ids": [3 + (7 * row + column) % (VOCABULARY - 3) for column in range(PROMPT_TOKENS)]}
               for row in range(PROMPTS)]
    job.step("generating with vllm")
    engine.generate(prompts, sampling, use_tqdm=False)
    start = time.perf_counter()
    outputs = engine.generate(prompts, sampling, use_tqdm=False)
    seconds = time.perf_counter() - start
    tokens = [list(output.outputs[0].token_ids) for output in outputs]
    result = {"name": unit, "status": "passed", "mode": "eager"}
    if [len(row) for row in tokens] != [NEW_TOKENS] * PROMPTS:
        return dict(result, status="failed", kind="wrong-result",
                    reason="asked for {} tokens of each prompt, got {}".format(NEW_TOKENS, [len(row) for row in tokens]))
    if not all(0 <= token < VOCABULARY for row in tokens for token in row):
        return dict(result, status="failed", kind="wrong-result", reason="a token lies outside the vocabulary")
    return dict(result, timing={"seconds": round(seconds, 4), "tokens_per_second": round(PROMPTS * NEW_TOKENS / seconds, 1)})
