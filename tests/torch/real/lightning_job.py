"""Lightning's Trainer: automatic optimization with accumulation and clipping, a validation loop, and callbacks off."""
import logging
import warnings

import job
import pytorch_lightning as lightning
import torch
from torch.utils.data import DataLoader

warnings.filterwarnings("ignore")
logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = job.Net(checkpointed=True)
        self.losses = []

    def training_step(self, rows, _):
        loss = self.net(rows).square().mean()
        self.losses.append(loss.item())
        return loss

    def validation_step(self, rows, _):
        self.losses.append(self.net(rows).mean().item())

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())


job.start()
rows = job.batch(32)
module = Module()
lightning.Trainer(accelerator="cpu", devices=1, max_epochs=1, accumulate_grad_batches=2, gradient_clip_val=1.0, logger=False,
                  enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False).fit(
    module, DataLoader(rows, batch_size=4), DataLoader(rows[:8], batch_size=4))
job.finish(module, losses=module.losses)
