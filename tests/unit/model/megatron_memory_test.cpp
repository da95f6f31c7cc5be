// What Megatron-LM's functional tests measured, beside what the formulas predict: a report. Its file lies beside the checkout; the two
// cases that are held to a bound are in transformer_test.cpp.
//
//   ctest --preset release -R megatron_memory -V
//
// Of each case the runs of the present configuration are shown, or else its first one, marked: older code. The figures are of the last
// rank, the last stage of the pipeline: allocated after a step, and the highest allocated. They are small models: what is not counted
// weighs.
#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/megatron_shape.h"
#include "tests/support/memory_report.h"
#include "tests/support/shared_files.h"

namespace liveset::model {
namespace {

using nlohmann::json;
using test::Case;

// What the formulas do not know, and the arguments that say so.
std::string why_not(const json& fact) {
  const json& r = fact.at("resolved");
  if (r.is_null()) return "the file states no configuration";
  const std::string name = fact.at("case");
  const json& arguments = fact.at("model_args");
  const auto kind = name.substr(0, name.find('/'));
  if (kind == "t5") return "an encoder beside a decoder";
  if (kind == "bert") return "BERT's token types, pooler and two heads";
  if (kind == "mimo" || kind == "multimodal-llava") return "an encoder of images";
  if (arguments.contains("--hybrid-layer-pattern") || arguments.contains("--hybrid-override-pattern") || kind == "hybrid")
    return "Mamba layers";
  for (const char* number :
       {"sequence", "micro_batch", "hidden", "heads", "layers", "ffn", "query_groups", "tp", "pp", "dp", "microbatches"})
    if (r.at(number).is_null()) return std::string(number) + " is not determined by the files";
  const std::pair<const char*, const char*> unknown[] = {
      {"--multi-latent-attention", "latent attention"},
      {"--mtp-num-layers", "layers that predict further tokens"},
      {"--fp8-format", "FP8: which stored tensors take one byte"},
      {"--moe-layer-freq", "dense layers between those with experts"},
      {"--moe-shared-expert-intermediate-size", "shared experts"},
      {"--pipeline-model-parallel-layout", "a layout of stages by hand"},
      {"--decoder-first-pipeline-num-layers", "stages of unequal length"},
      {"--account-for-embedding-in-pipeline-split", "stages of unequal length"},
      {"--num-distributed-optimizer-instances", "several instances of the distributed optimizer"},
      {"--use-megatron-fsdp", "Megatron's own FSDP"},
      {"--recompute-modules", "recomputation module by module"},
      {"--fine-grained-activation-offloading", "offloaded activations"},
      {"--microbatch-group-size-per-virtual-pipeline-stage", "a schedule in groups of microbatches"},
      {"--defer-embedding-wgrad-compute", "inputs of the output layer that are kept for later"},
      {"--delay-wgrad-compute", "weight gradients that are made later"},
      {"--export-te-mcore-model", "a model that is exported"},
      {"--flextron", "a model of several widths"}};
  for (const auto& [argument, what] : unknown)
    if (arguments.contains(argument)) return what;
  if (arguments.contains("--cuda-graph-impl")) return "CUDA graphs and their pools";
  if (arguments.value("--optimizer", json("adam")) == "muon") return "Muon's states";
  if (r.at("fsdp") == true) return "Megatron's own FSDP";
  if (name.find("modelopt") != std::string::npos) return "distillation: two models";
  if (r.at("dtype") == "fp32") return "32-bit training";
  if (r.at("dtype") == "fp16") return "the copies of gradients that the optimizer of fp16 training keeps";
  if (name.find("reshard") != std::string::npos) return "a checkpoint of another layout: the runs have two";
  const auto number = [&](const char* field, std::uint64_t otherwise) {
    return r.at(field).is_null() ? otherwise : r.at(field).get<std::uint64_t>();
  };
  const std::uint64_t ranks = number("tp", 1) * number("cp", 1) * number("dp", 1);
  if (ranks % (number("ep", 1) * number("expert_tp", number("experts", 0) == 0 ? 1 : number("tp", 1))) != 0)
    return "experts are shared out among more ranks than the file has: its placement is assumed";
  return "";
}

Case case_of(const json& fact, const std::string& gpu) {
  Case made;
  made.refused = why_not(fact);
  if (!made.refused.empty()) return made;
  json r = fact.at("resolved");
  const json& arguments = fact.at("model_args");
  if (r.at("padded_vocab").is_null()) {
    const std::uint64_t multiple = arguments.value("--make-vocab-size-divisible-by", 128) * r.at("tp").get<std::uint64_t>();
    r["padded_vocab"] = (50257 + multiple - 1) / multiple * multiple;
    made.assumed.push_back("vocabulary of GPT-2, 50257, padded to a multiple of " + std::to_string(multiple));
  }
  TransformerShape& shape = made.shape;
  shape = test::megatron_shape(r, gpu);
  if (!r.at("kv_channels").is_null()) shape.head_width = r.at("kv_channels");
  shape.gated_mlp = r.at("swiglu");
  shape.linear_biases = r.at("bias");
  shape.norm = r.at("normalization") == "RMSNorm" ? TransformerShape::Norm::rms : TransformerShape::Norm::layer;
  const std::string positions = r.at("position_embedding");
  shape.positions = positions == "rope"   ? TransformerShape::Positions::rotary
                    : positions == "none" ? TransformerShape::Positions::absent
                                          : TransformerShape::Positions::learned;
  shape.hidden_dropout = r.at("hidden_dropout") != 0.0;
  shape.attention_dropout = r.at("attention_dropout") != 0.0;
  shape.context = r.at("cp");
  shape.sequence_parallel = r.at("sequence_parallel");
  shape.sharding = r.at("distributed_optimizer") == true ? TransformerShape::Sharding::optimizer : TransformerShape::Sharding::nothing;
  if (r.at("gradient_accumulation_fusion") == true) shape.weight_gradient_bytes = 0;
  if (r.at("dtype") == "fp16") shape.gradient_bytes = 2;
  if (!r.at("experts").is_null()) {
    shape.experts = r.at("experts");
    shape.experts_per_token = arguments.value("--moe-router-topk", 2);
    shape.expert = r.at("ep");
    if (!r.at("expert_tp").is_null()) shape.expert_tensor = r.at("expert_tp");
    if (arguments.contains("--moe-ffn-hidden-size")) shape.ffn = arguments.at("--moe-ffn-hidden-size");
    made.assumed.push_back("each expert gets as many tokens");
  }
  if (r.at("recompute_granularity") == "full")
    shape.recompute = TransformerShape::Recompute::full;
  else if (r.at("recompute_granularity") == "selective")
    shape.recompute = TransformerShape::Recompute::selective;
  const std::string backend = arguments.value("--attention-backend", std::string("auto"));
  const bool is_local = r.at("transformer_impl") == "local" && !arguments.contains("--use-flash-attn");
  if (backend == "unfused" || is_local) {
    shape.attention = TransformerShape::Attention::stored_scores;
    shape.attention_output_copied = false;
  } else if (backend == "flash") {
    shape.attention_output_copied = shape.micro_batch > 1;
  }
  if (r.at("transformer_impl") == "local") shape.fixed.erase(shape.fixed.begin() + 1);
  const bool is_ampere = gpu == "A100 80GB";
  const std::uint64_t mib = 1 << 20;
  if (!fact.at("environment_variables").contains("CUBLAS_WORKSPACE_CONFIG") && gpu != "H100 80GB") {
    // PyTorch's own choice: 32 MiB on Hopper, else 2 x 4096 + 8 x 16 KiB.
    shape.fixed[0].bytes = 2 * 8320 * 1024;
    shape.fixed[0].source = "PyTorch, CublasHandlePool.cpp";
  }
  if (arguments.contains("--moe-grouped-gemm"))
    shape.fixed.push_back({"workspaces of the four streams of grouped products", 4 * (is_ampere ? 4 : 32) * mib,
                           trace::MemoryClass::library, false, "Transformer Engine, get_multi_stream_cublas_workspace"});
  // Its compiled steps do not work in place: the softmax lies beside the logits.
  if (arguments.contains("--cross-entropy-loss-fusion")) shape.logit_temporaries = 1;
  if (arguments.contains("--no-create-attention-mask-in-dataloader"))
    std::erase_if(shape.fixed, [](const auto& part) { return part.name.starts_with("attention mask"); });
  return made;
}

TEST(MegatronMemory, EveryCaseIsPredictedOrRefusedWithAReason) {
  const std::string path = test::shared_file("acceptance/megatron.json");
  if (path.empty()) GTEST_SKIP() << "the measured runs are not here";
  std::ifstream file(path);
  const json facts = json::parse(file);
  test::Errors after_current, peak_current, after_older, peak_older;
  std::size_t predicted = 0, refused = 0, runs = 0;
  for (const json& fact : facts.at("others")) {
    const std::string name = fact.at("case");
    SCOPED_TRACE(name);
    std::vector<const json*> shown;
    for (const json& run : fact.at("measured"))
      if (run.at("current") == true && !run.at("gpu").is_null()) shown.push_back(&run);
    if (shown.empty())
      for (const json& run : fact.at("measured"))
        if (shown.empty() && !run.at("gpu").is_null()) shown.push_back(&run);
    std::string why = shown.empty() ? "no run names its GPU" : why_not(fact);
    bool is_first = true;
    for (const json* run : shown) {
      if (!why.empty()) break;
      const Case found = case_of(fact, run->at("gpu"));
      const auto memory = transformer_memory(found.shape, {found.shape.pipeline - 1, false});
      if (!memory) {
        why = memory.error().what;
        break;
      }
      const double allocated = run->at("allocated").at("last"), peak = run->at("peak").at("last");
      const double after = memory->total(Moment::between).approximate(), highest = memory->total(memory->peak()).approximate();
      const bool current = run->at("current") == true;
      const double after_error = test::percent(after, allocated), peak_error = test::percent(highest, peak);
      (current ? after_current : after_older).add(after_error);
      (current ? peak_current : peak_older).add(peak_error);
      if (is_first)
        std::printf("%s%s\n", name.c_str(), found.assumed.empty() ? "" : (" (assumed: " + test::joined(found.assumed) + ")").c_str());
      std::printf("  %-9s %s  after a step %7.3f, predicted %7.3f GiB %+6.1f %%   peak %7.3f, predicted %7.3f GiB %+6.1f %%\n",
                  run->at("gpu").get<std::string>().c_str(), current ? "       " : "(older)", allocated / test::gib, after / test::gib,
                  after_error, peak / test::gib, highest / test::gib, peak_error);
      if (is_first) {
        const test::PredictedPeak parts{*memory, memory->peak(), 0, highest};
        std::printf("            at its %s: %s\n", std::string(moment_name(memory->peak())).c_str(), test::classes_at(parts).c_str());
      }
      is_first = false;
      ++runs;
    }
    if (!why.empty()) std::printf("%s\n  refused: %s\n", name.c_str(), why.c_str());
    ++(why.empty() ? predicted : refused);
  }
  after_current.print("present configurations, allocated after a step");
  peak_current.print("present configurations, peak");
  after_older.print("older code, allocated after a step");
  peak_older.print("older code, peak");
  std::printf("%zu cases: %zu predicted in %zu runs, %zu refused\n", predicted + refused, predicted, runs, refused);
  EXPECT_EQ(predicted + refused, facts.at("others").size());
}

}  // namespace
}  // namespace liveset::model
