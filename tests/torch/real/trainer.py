"""transformers' Trainer: a tiny Llama from a configuration, with its own gradient checkpointing, evaluation and saving."""
import os
import sys
import tempfile

os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
import job
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PrinterCallback, Trainer, TrainingArguments
from transformers.utils import logging

logging.disable_progress_bar()
job.start()
config = LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
                     num_key_value_heads=1, max_position_embeddings=32, pad_token_id=0, bos_token_id=1, eos_token_id=2)
model = LlamaForCausalLM(config)
if "checkpoint" in sys.argv:
    model.gradient_checkpointing_enable({"use_reentrant": "reentrant" in sys.argv})
generator = torch.Generator().manual_seed(1)
rows = [dict(input_ids=row, labels=row) for row in torch.randint(3, 64, (16, 12), generator=generator)]
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(folder, max_steps=3, per_device_train_batch_size=2, gradient_accumulation_steps=2, use_cpu=True,
                                  report_to=[], disable_tqdm=True, logging_steps=1,
                                  save_strategy="steps", save_steps=2, eval_strategy="steps", eval_steps=3, bf16="bf16" in sys.argv)
    trainer = Trainer(model, arguments, train_dataset=rows, eval_dataset=rows[:4])
    trainer.remove_callback(PrinterCallback)  # it prints times
    trainer.train()
    losses = [entry[key] for entry in trainer.state.log_history for key in ("loss", "grad_norm", "eval_loss") if key in entry]
    saved = sorted(os.listdir(os.path.join(folder, "checkpoint-2")))
job.finish(model, losses=losses, saved=saved)
