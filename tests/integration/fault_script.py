"""A training in which each hook of the probe fails in turn: before its work, and again after it.

Argument: `ddp` or `sharded`. Each fault lasts a few steps; after it the fences are set back, so that one training
goes through all of them.
"""

import hashlib
import io
import json
import sys
from functools import wraps
from itertools import product
from types import SimpleNamespace

import ddltop_agents.rank.stream as stream_module
from ddltop_agents.rank import sampling

ON_DEMAND = "rank.stream.act_at_step_end"
MODE = sys.argv[1]
NUM_BATCHES = 3

sites = {}  # hook -> its fence
fault = SimpleNamespace(hook="", when="", num_raised=0)
make_fence = stream_module.fenced


class InjectedError(Exception):
    pass


def raise_if_chosen(hook, when):
    if (fault.hook, fault.when) == (hook, when):
        fault.num_raised += 1
        raise InjectedError(hook)


def fenced_with_faults(site):
    def fence(hook):
        name = f"{hook.__module__.removeprefix('ddltop_agents.')}.{hook.__qualname__}"
        sites[name] = site

        @wraps(hook)
        def call(*args):
            raise_if_chosen(name, "early")
            result = hook(*args)
            raise_if_chosen(name, "late")
            return result

        return make_fence(site)(call)

    return fence


stream_module.fenced = fenced_with_faults
sampling.MAX_SHARE = 1e9  # every step in detail

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402

import ddltop  # noqa: E402

for module in ("collectives", "comm_hook", "fsdp", "joining"):
    __import__(f"ddltop_agents.rank.{module}")
__import__("ddltop_agents.phases")

stream = stream_module.stream


class NoClock:
    """A device clock that never gives a time: FSDP's waits are stamped only beside one."""

    def mark(self):
        return None

    def turn(self, *, is_detailed):
        pass

    def is_on_main_stream(self):
        return True

    def finish(self):
        pass


class Training:
    def __init__(self):
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
        self.is_sharded = MODE == "sharded"
        if self.is_sharded:
            fully_shard(net)
            stream.clock = NoClock()
        self.model = net if self.is_sharded else torch.nn.parallel.DistributedDataParallel(net)
        self.optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
        torch.manual_seed(1 + dist.get_rank())
        data = torch.utils.data.TensorDataset(torch.randn(NUM_BATCHES * 8, 16), torch.randn(NUM_BATCHES * 8, 4))
        self.loader = torch.utils.data.DataLoader(data, batch_size=8)
        self.digest = hashlib.sha256()

    def take_epoch(self):
        for batch, target in self.loader:
            self.optimizer.zero_grad()
            with ddltop.phase("rest"):
                loss = torch.nn.functional.mse_loss(self.model(batch), target)
            if self.is_sharded:
                loss.backward()
                self.optimizer.step()
                ddltop.step(num_samples=8)
            else:
                self.scaler.scale(loss).backward()
                self.scaler.step(self.optimizer)
                self.scaler.update()
            metric = loss.detach().clone()
            dist.all_reduce(metric)
            work = dist.all_reduce(metric, async_op=True)
            work.wait()
            self.digest.update(metric.numpy().tobytes())
        self.model.eval()
        with torch.no_grad():
            self.digest.update(self.model(batch).numpy().tobytes())
        self.model.train()
        torch.save({"loss": metric}, io.BytesIO())


def reset_fences():
    """Set everything back that a failed hook leaves behind."""
    from ddltop_agents.rank import collectives, stamps

    stream.failures.clear()
    stamps._Forward.owner = None
    stamps._Update.depth, stamps._Update.owner = 0, None
    collectives._Calls.depth = 0


def tell(site):
    told = {"hook": fault.hook, "when": fault.when, "site": site, "raised": fault.num_raised}
    # One write: the lines of two ranks must not mix.
    print(json.dumps(told | {"failures": dict(stream.failures), "rank": dist.get_rank()}) + "\n", end="", flush=True)


def main():
    dist.init_process_group("gloo")
    training = Training()
    training.take_epoch()
    for hook, when in product(sorted(sites), ("early", "late")):
        fault.hook, fault.when, fault.num_raised = hook, when, 0
        training.take_epoch()
        tell(sites[hook])
        fault.hook = ""
        reset_fences()
    # Decorated before this script could change the fence: what it runs raises instead.
    fault.hook, fault.when, fault.num_raised = ON_DEMAND, "early", 0
    stream.at_step_end = lambda: raise_if_chosen(ON_DEMAND, "early")
    training.take_epoch()
    tell("on demand")
    stream.at_step_end = None
    reset_fences()
    # The last fault stays, so that the run's facts must tell of it.
    fault.hook, fault.when = "rank.stamps._stamp_aside", "early"
    for _ in range(20):
        training.take_epoch()
    print(f"digest {dist.get_rank()} {training.digest.hexdigest()}\n", end="", flush=True)
    dist.destroy_process_group()


main()
