#!/usr/bin/env python3
"""torch_check.py: torch.distributed with the backend "nccl" on ranks that share one GPU, with
whatever libnccl.so.2 is loaded. To be started with Tutti's preloaded (LD_PRELOAD): NVIDIA's does
not let ranks share a GPU. Ends with 0, 77 (no PyTorch with CUDA here) or 1.
"""
import os
import sys

NOT_HERE = 77

try:
    import torch
    import torch.distributed as dist
    import torch.multiprocessing as mp
except ImportError as error:
    print(f"no PyTorch: {error}")
    sys.exit(NOT_HERE)


def check(rank: int, size: int, port: int) -> None:
    """One rank: all_reduce, all_gather and broadcast of several types and sizes."""
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(port)
    torch.cuda.set_device(0)
    dist.init_process_group("nccl", rank=rank, world_size=size)
    for count in (1, 1000, 1 << 20):
        for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int64):
            data = torch.full((count,), rank + 1, dtype=dtype, device="cuda")
            dist.all_reduce(data)
            wanted = size * (size + 1) // 2
            assert bool((data == wanted).all()), f"all_reduce of {count} {dtype}"
            mine = torch.full_like(data, rank + 7)
            parts = [torch.empty_like(data) for _ in range(size)]
            dist.all_gather(parts, mine)
            for peer, part in enumerate(parts):
                assert bool((part == peer + 7).all()), f"all_gather of {count} {dtype}"
            dist.broadcast(mine, src=size - 1)
            assert bool((mine == size + 6).all()), f"broadcast of {count} {dtype}"
    torch.cuda.synchronize()
    dist.barrier()
    dist.destroy_process_group()


def main() -> int:
    if not torch.cuda.is_available():
        print(f"PyTorch {torch.__version__} sees no GPU")
        return NOT_HERE
    # version() is that of the header it was compiled with, whatever library is loaded.
    theirs = ".".join(str(part) for part in torch.cuda.nccl.version())
    ours = bytes(torch.cuda.nccl.unique_id()).startswith(b"tutti id")
    print(f"PyTorch {torch.__version__}, made for NCCL {theirs}, on {'Tutti' if ours else 'NCCL'}")
    for size in (1, 2):
        mp.spawn(check, args=(size, 29620 + size), nprocs=size, join=True)
        print(f"{size} ranks on one GPU: passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
