#!/usr/bin/env python3
"""Whether Hugging Face's transformers and we read each other's models; see README.md.

check.py [--tutti PROGRAM] [--tolerance T] [open FOLDER]
"""
import argparse
import importlib
import pathlib
import subprocess
import sys
import tempfile

SKIPPED = 77
TOKENS = [5, 17, 42, 3, 99, 0, 63, 63, 8, 21]


def missing_packages():
    """Why each package that is needed cannot be imported."""
    reasons = []
    for name in ("torch", "transformers", "safetensors"):
        try:
            importlib.import_module(name)
        except ImportError as error:
            reasons.append(f"{name} ({error})")
    return reasons


def tiny_configs():
    """Small models whose extents are all different, so that no mix-up goes unnoticed."""
    import transformers
    llama = dict(vocab_size=101, hidden_size=48, intermediate_size=72, num_hidden_layers=3,
                 num_attention_heads=6, num_key_value_heads=2, max_position_embeddings=64,
                 initializer_range=0.3, rms_norm_eps=1e-5)
    gpt2 = dict(vocab_size=101, n_embd=40, n_layer=3, n_head=5, n_positions=64, n_inner=90,
                initializer_range=0.3, bos_token_id=0, eos_token_id=0)
    return {
        "llama": transformers.LlamaConfig(**llama),
        "llama-tied": transformers.LlamaConfig(**llama, tie_word_embeddings=True),
        "llama-wide-heads": transformers.LlamaConfig(
            **llama, head_dim=16,
            rope_parameters={"rope_type": "default", "rope_theta": 500000.0}),
        "gpt2": transformers.GPT2Config(**gpt2),
        "gpt2-untied": transformers.GPT2Config(**gpt2, tie_word_embeddings=False),
        "mixtral": transformers.MixtralConfig(**llama, num_local_experts=4, num_experts_per_tok=2,
                                              sliding_window=None),
    }


def make_model(config):
    """A random model: biases and norms, too, which transformers would leave at 0 and 1."""
    import torch
    import transformers
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.2)
    return model


def open_model(folder):
    """The model in a folder. Every weight must be there, and no other."""
    import torch
    import transformers
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, output_loading_info=True, local_files_only=True)
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not info[kind], f"{folder}: {kind}: {sorted(info[kind])}"
    return model.eval()


def their_logits(model):
    import torch
    with torch.no_grad():
        return model(torch.tensor([TOKENS])).logits[0]


def our_logits(tutti, folder):
    import torch
    command = [tutti, "sample", str(folder), "--logits", "--tokens", ",".join(map(str, TOKENS))]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    return torch.tensor([[float(word) for word in line.split()]
                         for line in done.stdout.splitlines() if line.strip()])


def expect_same_weights(name, wanted, got):
    import torch
    wanted, got = wanted.state_dict(), got.state_dict()
    assert wanted.keys() == got.keys(), f"{name}: {wanted.keys() ^ got.keys()}"
    for key, value in wanted.items():
        assert torch.equal(value, got[key]), f"{name}: {key} differs"


def expect_our_logits(args, name, folder, model):
    if not args.tutti:
        return
    ours, theirs = our_logits(args.tutti, folder), their_logits(model)
    assert ours.shape == theirs.shape, f"{name}: {ours.shape} is not {theirs.shape}"
    off = (ours - theirs).abs().max().item()
    most = args.tolerance * max(1.0, theirs.abs().max().item())
    assert off <= most, f"{name}: logits differ by {off}, more than {most}"
    print(f"{name}: our logits differ by {off:.2g} of {theirs.abs().max().item():.2g}")


def check_resaved(args, name, folder, model, shard_bytes):
    import torch
    copy = folder.with_name(f"{folder.name}-copy-{shard_bytes}")
    subprocess.run([args.tutti, "checkpoint", "reshard", str(folder), str(copy), "--shard-gb",
                    str(shard_bytes / 1e9)], check=True, timeout=120, stdout=subprocess.DEVNULL)
    files = len(list(copy.glob("*.safetensors")))
    opened = open_model(copy)
    expect_same_weights(name, model, opened)
    assert torch.equal(their_logits(model), their_logits(opened)), f"{name}: logits differ"
    expect_our_logits(args, f"{name}, copied", copy, model)
    print(f"{name}: the copy in {files} file{'s' if files > 1 else ''} is the same, bit by bit")


def check_all(args):
    with tempfile.TemporaryDirectory() as work:
        for name, config in tiny_configs().items():
            model = make_model(config)
            folder = pathlib.Path(work) / name
            model.save_pretrained(folder)
            model = open_model(folder)
            expect_our_logits(args, name, folder, model)
            for shard_bytes in (1 << 40, 50000):
                check_resaved(args, name, folder, model, shard_bytes)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tutti", help="our program, for logits and copies")
    parser.add_argument("--tolerance", type=float, default=1e-4,
                        help="of logits, relative to the largest")
    parser.add_argument("what", nargs="*", help="open FOLDER; without it, all but that")
    args = parser.parse_args()
    if args.what and (len(args.what) != 2 or args.what[0] != "open"):
        parser.error("only 'open FOLDER' is known")
    if not args.what and not args.tutti:
        parser.error("nothing to check: give --tutti, or open FOLDER")
    reasons = missing_packages()
    if reasons:
        print("skipped: cannot import " + ", ".join(reasons))
        return SKIPPED
    if args.what:
        expect_our_logits(args, args.what[1], args.what[1], open_model(args.what[1]))
        print(f"{args.what[1]}: transformers opens it")
    else:
        check_all(args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
