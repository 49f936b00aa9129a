"""Times K·V with NumPy or PyTorch: python -c SCRIPT module precision dir spec.

torch computes K in blocks of rows, in place, and multiplies each at once;
numpy computes all of K beforehand and times the product with it alone.
"""
import json
import sys
import time

import numpy as np

module, precision, dir, spec = sys.argv[1:5]
spec = json.loads(spec)
n, d, s, tau = spec["N"], spec["D"], spec["S"], spec["Tau"]
matern = spec["Kernel"] == "matern52"
x = np.fromfile(dir + "/x").reshape(n, d).astype(precision)
v = np.ascontiguousarray(np.fromfile(dir + "/v").reshape(s, n).T.astype(precision))
block = 1024

if module == "torch":
    import torch

    torch.set_num_threads(spec["Threads"])
    torch.set_grad_enabled(False)
    version = torch.__version__
    tx, tv = torch.from_numpy(x), torch.from_numpy(v)
    sq = (tx * tx).sum(1)

    def kernel(lo, hi):
        u = torch.addmm(sq[None, :], tx[lo:hi], tx.T, alpha=-2)
        u.add_(sq[lo:hi, None]).clamp_(min=0).mul_(tau)
        if not matern:
            return u.neg_().exp_()
        a = u.mul_(10).sqrt_()
        return torch.exp(-a).mul_(1 + a + a * a / 3)

    def product():
        return torch.cat([kernel(lo, min(lo + block, n)) @ tv for lo in range(0, n, block)]).numpy()

else:
    version = np.__version__
    sq = (x * x).sum(1)
    k = np.empty((n, n), precision)
    for lo in range(0, n, block):
        u = k[lo : lo + block]
        np.matmul(x[lo : lo + block], x.T, out=u)
        u *= -2
        u += sq[None, :]
        u += sq[lo : lo + block, None]
        np.maximum(u, 0, out=u)
        u *= tau
        if matern:
            a = np.sqrt(10 * u)
            u[:] = np.exp(-a) * (1 + a + a * a / 3)
        else:
            np.negative(u, out=u)
            np.exp(u, out=u)
    if s == 1:
        v = v[:, 0]

    def product():
        return k @ v


wall, cpu = [], []
for _ in range(spec["Repeat"] + 1):
    start, used = time.perf_counter(), time.process_time()
    y = product()
    wall.append(time.perf_counter() - start)
    cpu.append(time.process_time() - used)
np.ascontiguousarray(y.T.astype("float64")).tofile(dir + "/y")
median = lambda times: sorted(times[1:])[len(times[1:]) // 2]
print(json.dumps({"Version": version, "Seconds": median(wall), "Processor": median(cpu)}))
