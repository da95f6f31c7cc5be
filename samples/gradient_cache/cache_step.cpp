#include "samples/gradient_cache/cache_step.h"

#include <algorithm>
#include <cstdio>

#include "samples/gradient_cache/recording.h"

namespace gradient_cache {
namespace {

template <class Matrix>
std::string matrix_json(const Matrix& matrix) {
  std::string text = "[";
  for (const auto& row : matrix) {
    text += text.size() == 1 ? "[" : ", [";
    for (std::size_t j = 0; j < row.size(); ++j) text += (j == 0 ? "" : ", ") + number_text(row[j]);
    text += "]";
  }
  return text + "]";
}

class CachedStep {
 public:
  explicit CachedStep(const Options& options) : options_(options), chunks_(chunks_of(options.chunk)), random_{options.seed} {}

  StepResult run() {
    const liveset::Step step(0);
    for (const Chunk& chunk : chunks_) encode_chunk(chunk);
    result_.random_after_pass_1 = random_.state;
    compute_loss();
    for (std::size_t i = 0; i < chunks_.size(); ++i) re_encode_chunk(chunks_[i], states_[i]);
    if (options_.restore) random_.state = result_.random_after_pass_1;
    release_the_rest();
    result_.random_at_end = random_.state;
    result_.hidden_peak = store_.hidden_peak();
    return std::move(result_);
  }

 private:
  // Hidden vectors live only while their chunk runs; the representations stay.
  void encode_chunk(const Chunk& chunk) {
    const liveset::Phase phase(LIVESET_FORWARD);
    const liveset::Region region("encode");
    states_.push_back(random_.state);
    for (const std::size_t row : chunk.rows) {
      const Row encoded = encode_row(&Store::create, chunk.side, row);
      result_.representations[chunk.side][row] = encoded.r;
      store_.create(value_id(chunk.side, row, item_r), encoded.r.data(), encoded.r.size(), {value_id(chunk.side, row, item_z)});
    }
    finish_event(region, "encode", chunk, states_.back());
    for (const std::size_t row : chunk.rows)
      for (const Item item : {item_t, item_m, item_z}) store_.drop(value_id(chunk.side, row, item));
  }

  using Making = void (Store::*)(ValueId, const double*, std::size_t, const std::vector<ValueId>&);

  Row encode_row(Making make, Side side, std::size_t row) {
    const Row encoded = encode(inputs[side][row], options_.dropout, random_);
    const ValueId t = value_id(side, row, item_t), m = value_id(side, row, item_m);
    (store_.*make)(t, encoded.t.data(), encoded.t.size(), {});
    (store_.*make)(m, encoded.m.data(), encoded.m.size(), {});
    (store_.*make)(value_id(side, row, item_z), encoded.z.data(), encoded.z.size(), {t, m});
    return encoded;
  }

  void compute_loss() {
    const liveset::Phase phase(LIVESET_LOSS);
    const liveset::Region region("loss");
    std::vector<ValueId> reads;
    for (const Side side : {query, document})
      for (std::size_t row = 0; row < row_count; ++row) reads.push_back(value_id(side, row, item_r));
    result_.loss = loss_of(result_.representations);
    store_.create(scores_value, result_.loss.scores[0].data(), row_count * row_count, reads);
    reads.push_back(scores_value);
    store_.use(scores_value, reads);
    for (const Side side : {query, document})
      for (std::size_t row = 0; row < row_count; ++row)
        store_.create(value_id(side, row, item_g), result_.loss.gradients[side][row].data(), 2, {scores_value});
    finish_event(region, "loss", {}, random_.state);
  }

  void re_encode_chunk(const Chunk& chunk, std::uint32_t state) {
    const liveset::Phase phase(LIVESET_RECOMPUTE);
    const liveset::Region region("re-encode");
    if (options_.restore) random_.state = state;
    const std::uint32_t before = random_.state;
    for (const std::size_t row : chunk.rows) {
      encode_row(&Store::remake, chunk.side, row);
      store_.merge(value_id(chunk.side, row, item_r), {value_id(chunk.side, row, item_z)});
    }
    const liveset::Phase backward(LIVESET_BACKWARD);
    Gradients part;
    for (const std::size_t row : chunk.rows) add_row(chunk.side, row, part);
    result_.gradients.add(part);
    finish_event(region, "re-encode", chunk, before);
    for (const std::size_t row : chunk.rows)
      for (const Item item : {item_t, item_m, item_z}) store_.release(value_id(chunk.side, row, item));
  }

  // Reads the row back from where it lives.
  void add_row(Side side, std::size_t row, Gradients& part) {
    const ValueId t = value_id(side, row, item_t), m = value_id(side, row, item_m), z = value_id(side, row, item_z),
                  g = value_id(side, row, item_g);
    store_.use(value_id(side, row, item_r), {g, z, m, t});
    Row held;
    std::copy_n(store_.numbers(t), held.t.size(), held.t.begin());
    std::copy_n(store_.numbers(m), held.m.size(), held.m.begin());
    std::copy_n(store_.numbers(z), held.z.size(), held.z.begin());
    add_gradient(inputs[side][row], held, {store_.numbers(g)[0], store_.numbers(g)[1]}, part);
  }

  // Says what the chunk was, while its hidden vectors still live.
  void finish_event(const liveset::Region& region, const char* stage, const Chunk& chunk, std::uint32_t before) {
    const bool re_encode = std::string(stage) == "re-encode";
    region.attribute("stage", ("\"" + std::string(stage) + "\"").c_str());
    region.attribute("side", (chunk.rows.empty() ? "null" : "\"" + std::string(side_names[chunk.side]) + "\"").c_str());
    region.attribute("rows", (json_of(chunk.rows)).c_str());
    region.attribute("rng_before", before);
    region.attribute("rng_after", random_.state);
    if (re_encode) {
      region.attribute("dL_dW1_so_far", (json_of(result_.gradients.w1)).c_str());
      region.attribute("dL_dW2_so_far", (json_of(result_.gradients.w2)).c_str());
    }
    result_.events.push_back({stage, chunk, before, random_.state, store_.hidden_live(), result_.gradients});
  }

  void release_the_rest() {
    const liveset::Phase phase(LIVESET_BACKWARD);
    store_.release(scores_value);
    for (const Side side : {query, document})
      for (std::size_t row = 0; row < row_count; ++row) {
        store_.release(value_id(side, row, item_r));
        store_.release(value_id(side, row, item_g));
      }
  }

  Options options_;
  std::vector<Chunk> chunks_;
  std::vector<std::uint32_t> states_;  // before each chunk's first encoding
  Random random_;
  Store store_;
  StepResult result_;
};

}  // namespace

StepResult cached_step(const Options& options) { return CachedStep(options).run(); }

Reference reference_step(const Options& options) {
  const std::vector<Chunk> chunks = chunks_of(options.chunk);
  Random random{options.seed};
  std::array<std::array<Row, row_count>, 2> graph{};
  Representations representations{};
  Reference reference;
  for (const Chunk& chunk : chunks)
    for (const std::size_t row : chunk.rows) {
      graph[chunk.side][row] = encode(inputs[chunk.side][row], options.dropout, random);
      representations[chunk.side][row] = graph[chunk.side][row].r;
      reference.hidden_peak += 3;
    }
  const Loss loss = loss_of(representations);
  for (const Chunk& chunk : chunks) {
    Gradients part;
    for (const std::size_t row : chunk.rows)
      add_gradient(inputs[chunk.side][row], graph[chunk.side][row], loss.gradients[chunk.side][row], part);
    reference.gradients.add(part);
  }
  return reference;
}

std::string number_text(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", number);
  return text;
}

std::string json_of(const Matrix1& matrix) { return matrix_json(matrix); }
std::string json_of(const Matrix2& matrix) { return matrix_json(matrix); }
std::string json_of(const std::vector<std::size_t>& rows) {
  std::string text = "[";
  for (const std::size_t row : rows) text += (text.size() == 1 ? "" : ", ") + std::to_string(row);
  return text + "]";
}

}  // namespace gradient_cache
