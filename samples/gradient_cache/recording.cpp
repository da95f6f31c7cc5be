#include "samples/gradient_cache/recording.h"

#include <algorithm>
#include <cstring>

namespace gradient_cache {
namespace {

bool is_hidden(ValueId id) { return id < scores_value && id % item_count <= item_z; }

const char* group_of(ValueId id) {
  if (id == scores_value) return "scores";
  if (is_hidden(id)) return "hidden_vectors";
  return id % item_count == item_r ? "representations" : "representation_gradients";
}

std::string name_of(ValueId id) {
  if (id == scores_value) return "S";
  const std::size_t row = id / item_count;
  return std::string(row < row_count ? "q" : "d") + std::to_string(row % row_count) + "." + "tmzrg"[id % item_count];
}

}  // namespace

Store::Store() : values_(scores_value + 1), blocks_(scores_value + 1) {
  if (!liveset::recording()) return;
  for (ValueId id = 0; id < values_.size(); ++id) values_[id] = liveset::Value(name_of(id), group_of(id));
}

void Store::create(ValueId id, const double* numbers, std::size_t count, const std::vector<ValueId>& reads) {
  store(id, numbers, count);
  values_[id].create(blocks_[id].bytes, arena_.heap(), blocks_[id].numbers, handles(reads));
}

void Store::remake(ValueId id, const double* numbers, std::size_t count, const std::vector<ValueId>& reads) {
  store(id, numbers, count);
  values_[id].remake(blocks_[id].bytes, arena_.heap(), blocks_[id].numbers, handles(reads));
}

void Store::merge(ValueId id, const std::vector<ValueId>& reads) {
  values_[id].merge(blocks_[id].bytes, arena_.heap(), blocks_[id].numbers, handles(reads));
}

void Store::use(ValueId id, const std::vector<ValueId>& reads) { values_[id].use(handles(reads)); }

void Store::drop(ValueId id) {
  values_[id].drop();
  forget(id);
}

void Store::release(ValueId id) {
  values_[id].release();
  forget(id);
}

void Store::store(ValueId id, const double* numbers, std::size_t count) {
  Block& block = blocks_[id];
  block.bytes = count * sizeof(double);
  block.numbers = static_cast<double*>(arena_.allocate(block.bytes));
  std::memcpy(block.numbers, numbers, block.bytes);
  if (is_hidden(id)) hidden_peak_ = std::max(hidden_peak_, ++hidden_live_);
}

void Store::forget(ValueId id) {
  arena_.deallocate(blocks_[id].numbers);
  blocks_[id].numbers = nullptr;
  if (is_hidden(id)) --hidden_live_;
}

liveset::Value::Reads Store::handles(const std::vector<ValueId>& ids) const {
  liveset::Value::Reads reads;
  for (const ValueId id : ids) reads.push_back(values_[id]);
  return reads;
}

}  // namespace gradient_cache
