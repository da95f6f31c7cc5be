// Peaks that projects published for their training runs, beside what the formulas predict: a report. Its table lies beside the checkout.
//
//   ctest --preset release -R published_memory -V            the table
//   LIVESET_PARTS=1 ...                                      and each prediction's parts
//
// A row states what it states; what it leaves out is taken from the one documented default of that project at that time, and listed.
// Nothing is fitted: a row's error is what the formulas do not know. Where the peak is of `reserved`, two figures stand beside it: the
// predicted peak of `allocated`, which it cannot be below, and the sum of each part's own highest, which is what a cache holds of whose
// blocks none is used for another part. Published jobs lie near the second: sizes of gradients, gathered units and logits do not fit
// each other's blocks.
#include <gtest/gtest.h>

#include <charconv>
#include <cstdlib>

#include "tests/support/memory_report.h"
#include "tests/support/shared_files.h"

namespace liveset::model {
namespace {

using test::Case;
using Row = std::map<std::string, std::string>;
using Shape = TransformerShape;

std::uint64_t number(const Row& row, const std::string& title) {
  const auto cell = row.find(title);
  std::uint64_t value = 0;
  if (cell != row.end()) std::from_chars(cell->second.data(), cell->second.data() + cell->second.size(), value);
  return value;
}

const std::string& text(const Row& row, const std::string& title) {
  static const std::string empty;
  const auto cell = row.find(title);
  return cell == row.end() ? empty : cell->second;
}

bool says(const Row& row, const char* title, const char* word) { return text(row, title).find(word) != std::string::npos; }

Case refused(std::string why) {
  Case none;
  none.refused = std::move(why);
  return none;
}

// What the row itself says of the model and of how it is shared out. All of these models are of Llama's kind.
Case stated(const Row& row) {
  Case made;
  Shape& shape = made.shape;
  shape.layers = number(row, "layers");
  shape.hidden = number(row, "hidden");
  shape.ffn = number(row, "ffn");
  shape.heads = number(row, "heads");
  shape.key_value_heads = number(row, "kv_heads");
  shape.vocabulary = number(row, "vocab");
  shape.sequence = number(row, "seq");
  shape.micro_batch = number(row, "micro_batch");
  const auto ranks = [&](const char* title) { return std::max<std::uint64_t>(number(row, title), 1); };
  shape.tensor = ranks("TP");
  shape.pipeline = ranks("PP");
  shape.context = ranks("CP");
  shape.data = ranks("DP/FSDP");
  shape.sequence_parallel = shape.tensor > 1;
  shape.gated_mlp = true;
  shape.linear_biases = false;
  shape.tied_embeddings = false;
  shape.norm = Shape::Norm::rms;
  shape.positions = Shape::Positions::rotary;
  shape.hidden_dropout = shape.attention_dropout = false;
  shape.attention = Shape::Attention::fused;
  shape.norm_statistics = true;
  shape.gradients_between_steps = false;  // optimizer.zero_grad() sets them to none
  shape.master_bytes = 0;
  shape.fixed = {
      {"ids and labels of the batch, 8 bytes each", shape.sequence * shape.micro_batch * 16, trace::MemoryClass::input, false, "16bs"}};
  return made;
}

// https://github.com/pytorch/torchtitan at 9dec370 (December 2024) and 8d6877e (2026): parameters and gradients of 32 bits that are shared
// out, computed with in 16; every layer a unit, the rest one.
Case torchtitan(const Row& row) {
  if (says(row, "notes", "NVFP4")) return refused("linears keep inputs of 4 bits: not in the formulas");
  if (says(row, "compile", "graph_trainer")) return refused("neither batch nor sequence is stated, nor what graph_trainer's passes keep");
  Case made = stated(row);
  Shape& shape = made.shape;
  shape.parameter_bytes = 4;
  shape.gathered_bytes = shape.whole_gradient_bytes = 2;
  shape.reduce_bytes = shape.gradient_bytes = 4;
  shape.sharding = Shape::Sharding::parameters;
  shape.gathered_inputs_kept = !says(row, "notes", "AsyncTP");  // which gathers within its products
  if (says(row, "model", "Qwen3")) {
    shape.head_width = 128;
    made.assumed.push_back("norms of Q and K not counted");
  }
  if (says(row, "recompute", "full"))
    shape.recompute = Shape::Recompute::full;
  else
    shape.recompute = Shape::Recompute::products;
  if (says(row, "recompute", "not stated")) made.assumed.push_back("selective \"op\" recomputation, the recipe's");
  if (says(row, "notes", "Float8")) made.assumed.push_back("Float8: linears keep 16-bit inputs (torchao casts again in the backward)");
  // The loss runs in 32 bits, operation by operation: its log-softmax, and two gradients of it (of logits that are shared out three
  // tensors: torch/distributed/tensor/parallel/loss.py). What the model returned is let go of.
  shape.logit_temporaries = shape.tensor > 1 ? 3 : 2;
  if (says(row, "source_path", "202506")) {
    shape.logit_bytes = 2;  // compiled: the 16-bit logits are kept, and their gradient is made at once
    shape.logit_temporaries = 1;
  } else if (!says(row, "source_path", "benchmarks/")) {
    shape.logit_chunks = 8;
    made.assumed.push_back("loss in 8 chunks, the recipe's");
  }
  if (shape.pipeline > 1) {
    shape.interleave = says(row, "notes", "interleaved") ? 2 : 1;
    shape.micro_batch /= shape.pipeline;
    shape.gathered_held = true;
    shape.accumulated_bytes = 4;
    made.assumed.push_back("as many microbatches as stages, the default; layers shared out evenly");
  }
  return made;
}

// https://github.com/meta-pytorch/torchtune: everything in 16 bits, AdamW's moments too; the rows of the README are a ladder, each with
// what those before it have.
Case torchtune(const Row& row) {
  if (says(row, "notes", "QLoRA")) return refused("QLoRA: quantized frozen weights are not in the formulas");
  if (says(row, "notes", "LoRA")) return refused("LoRA: frozen weights and adapters are not in the formulas");
  if (says(row, "recompute", "offload")) return refused("offloaded activations are not in the formulas");
  if (says(row, "gpu", "A6000")) return refused("the same recipe as the row of the 4090 and twice its memory: what differs is not stated");
  Case made = stated(row);
  Shape& shape = made.shape;
  shape.gradient_bytes = shape.moment_bytes = 2;
  shape.key_values_repeated = true;  // expand and flatten, before the kernel
  const auto chunked = [&] {
    // All chunks' logits are there, in 16 bits; only one chunk's gradient is.
    shape.logit_bytes = 2;
    shape.fixed.push_back({"gradient of one of 8 chunks of logits", shape.sequence * shape.micro_batch * shape.vocabulary * 2 / 8,
                           trace::MemoryClass::temporary, true, "2bsV/8"});
  };
  const auto in_backward = [&] {
    shape.gradient_bytes = 0;  // none lives longer than the update of its parameter
    shape.weight_gradient_bytes = 2;
    shape.fixed.push_back(
        {"gradient of the output layer's weight", shape.vocabulary * shape.hidden * 2, trace::MemoryClass::gradient, true, "2Vh"});
  };
  if (says(row, "model", "3.2")) {
    shape.tied_embeddings = true;
    made.assumed.push_back("ladder of the README");
    if (says(row, "notes", "packed")) {
      shape.norm_in_steps = true;
      shape.activation_fused = false;
    }
    // The loss in 32 bits: log-softmax and two gradients of it.
    shape.logit_temporaries = 2;
    if (says(row, "recompute", "full")) {
      shape.recompute = Shape::Recompute::full;
      shape.logit_temporaries = 0;
      chunked();
    }
    if (says(row, "optimizer", "step in backward")) in_backward();
    return made;
  }
  made.assumed.push_back(
      "8B_full_single_device: layers made again, PagedAdamW8bit's moments in managed memory (not allocated), step in the backward");
  shape.recompute = Shape::Recompute::full;
  shape.moment_bytes = 0;
  chunked();
  in_backward();
  return made;
}

// https://github.com/Lightning-AI/litgpt, config_hub/finetune: full.yaml of both Llama 3.2 says AdamW, all in 16 bits: 2 + 2 + 4 bytes of
// each of 1.236 and 3.213 billion parameters, the tied head counted once, are 9.9 and 25.7 GB.
Case litgpt(const Row& row) {
  if (says(row, "notes", "qlora")) return refused("QLoRA: quantized frozen weights are not in the formulas");
  if (says(row, "notes", "LoRA") || says(row, "notes", "lora")) return refused("LoRA: frozen weights and adapters are not in the formulas");
  const double least = says(row, "model", "1b") ? 8 * 1.236e9 : 8 * 3.213e9;
  if (static_cast<double>(number(row, "bytes")) < least)
    return refused("less than parameters, gradients and AdamW's moments take: not of the configuration that is published with it");
  return refused("widths and heads are not stated");
}

Case case_of(const Row& row) {
  if (says(row, "param_dtype/compute", "FP8")) return refused("FP8: which stored tensors take one byte is not in the formulas");
  if (says(row, "model", "MLA")) return refused("latent attention, and experts whose numbers are not given");
  if (says(row, "model", "Mamba")) return refused("Mamba layers are not in the formulas");
  if (says(row, "source_repo", "torchtitan")) return torchtitan(row);
  if (says(row, "source_repo", "torchtune")) return torchtune(row);
  if (says(row, "source_repo", "litgpt")) return litgpt(row);
  return refused("nothing is documented of this project's defaults");
}

std::string in_gib(double bytes) {
  char number[32];
  std::snprintf(number, sizeof number, "%.2f", bytes / test::gib);
  return number;
}

std::string in_percent(double error) {
  char number[32];
  std::snprintf(number, sizeof number, "%+.1f %%", error);
  return number;
}

TEST(PublishedMemory, EveryRowIsPredictedOrRefusedWithAReason) {
  const std::string path = test::shared_file("realfiles/facts/published_tables.tsv");
  if (path.empty()) GTEST_SKIP() << "the published tables are not here";
  const auto rows = test::read_table(path);
  EXPECT_FALSE(rows.empty());
  test::Errors reserved, without_reuse, allocated;
  const bool shows_parts = std::getenv("LIVESET_PARTS") != nullptr;
  std::printf("row  measured GiB  predicted GiB    error\n");
  std::size_t refusals = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    SCOPED_TRACE("row " + std::to_string(i + 1));
    const Case found = case_of(row);
    const double measured = static_cast<double>(number(row, "bytes"));
    const std::string what = text(row, "model") + ", " + text(row, "notes");
    if (!found.refused.empty()) {
      ++refusals;
      std::printf("%3zu  %12.2f  refused: %s\n       %s\n", i + 1, measured / test::gib, found.refused.c_str(), what.c_str());
      continue;
    }
    const Result<test::PredictedPeak> peak = test::fullest(found.shape, 0, found.shape.pipeline - 1);
    ASSERT_TRUE(peak) << peak.error().message();
    ASSERT_GT(measured, 0);
    const double error = test::percent(peak->bytes, measured);
    const bool is_reserved = says(row, "measured_kind", "reserved");
    (is_reserved ? reserved : allocated).add(error);
    std::string cached;
    if (is_reserved) {
      const double other_error = test::percent(peak->without_reuse, measured);
      without_reuse.add(other_error);
      cached = "allocated; without reuse " + in_gib(peak->without_reuse) + " " + in_percent(other_error);
    }
    std::printf("%3zu  %12.2f  %13.2f  %+6.1f %%  %s\n       %s; %s at its %s\n       %s\n", i + 1, measured / test::gib,
                peak->bytes / test::gib, error, cached.c_str(), what.c_str(),
                found.shape.pipeline > 1 ? ("stage " + std::to_string(peak->stage)).c_str() : "fullest",
                std::string(moment_name(peak->moment)).c_str(), test::classes_at(*peak).c_str());
    if (!found.assumed.empty()) std::printf("       assumed: %s\n", test::joined(found.assumed).c_str());
    if (shows_parts) test::print_parts(*peak);
  }
  reserved.print("peak reserved, beside the peak of allocated");
  without_reuse.print("peak reserved, beside the sum without reuse");
  allocated.print("peak allocated or active");
  std::printf("%zu rows, %zu refused\n", rows.size(), refusals);
}

}  // namespace
}  // namespace liveset::model
