// make_capture FILE: a small trace with every kind of event, entry and packet, to be frozen once per version of the
// format.
#include <cstdio>
#include <string>

#include "profiler/writer/trace_writer.h"
#include "tests/support/random_events.h"

namespace {

using namespace liveset;

void define(writer::TraceWriter& writer) {
  writer.define_source(1, "api", "1", "what the program reports through liveset.h", "everything else");
  writer.define_source(2, "c10", "2.14.1", "every block of PyTorch's allocators", "memory that others allocate");
  std::uint32_t string = 0;
  for (const char* text :
       {"cpu/arena", "cuda:0", "GPT", "bs.0", "addmm", "checkpoint:0", "h0", "h1", "hidden_vectors", "{\"side\": \"query\"}"}) {
    writer.define_string(++string, text);
  }
  writer.define_string(++string, "not UTF-8: \xff");
  writer.define_heap(1, 1, proto::CPU, -1, 1);
  writer.define_heap(2, 2, proto::CUDA, 0, 2);
  writer.define_thread(1, 4711, "main");
  writer.define_thread(2, 4712, "autograd");
  writer.define_scope(1, 0, proto::SCOPE_MODULE, 3);
  writer.define_scope(2, 1, proto::SCOPE_REGION, 6);
  writer.define_scope(3, 2, proto::SCOPE_MODULE, 4);
  writer.define_scope(4, 3, proto::SCOPE_OP, 5);
  writer.define_value(1, 7, 9, 0);
  writer.define_value(2, 8, 9, -1);
}

// Every kind at least once, with ids that are defined (and some that are not).
void append_kinds(writer::TraceWriter& writer) {
  std::uint64_t time = 10;
  const std::uint32_t reads[] = {1, 2, 9};
  for (int kind = 1; kind < proto::EventKind_ARRAYSIZE; ++kind) {
    if (!proto::EventKind_IsValid(kind)) continue;
    writer::Event event = test::event(kind, time += 1234);
    event.thread = 1 + kind % 3;
    event.phase = static_cast<std::uint8_t>(kind % 6);
    event.memory_class = static_cast<std::uint8_t>(kind % 17);
    event.scope = static_cast<std::uint32_t>(kind % 5);
    event.heap = 1 + kind % 2;
    event.name = event.text = static_cast<std::uint32_t>(kind % 13);
    event.value = static_cast<std::uint32_t>(kind % 4);
    event.stream = static_cast<std::uint64_t>(kind % 2);
    event.address = 0x7f0000000000 + 0x200 * static_cast<std::uint64_t>(kind);
    event.size = 512;
    event.number = 3 - kind;
    event.reads = std::span(reads).first(static_cast<std::size_t>(kind % 4));
    event.has_totals = kind % 2 == 1;
    event.total = 4096;
    event.reserved = 1 << 20;
    writer.append(event);
  }
}

// What format 1.2 says of tensors: a dtype, an index of a region's slot, both.
void append_facts(writer::TraceWriter& writer) {
  std::uint64_t time = 1'000'000;
  for (const int kind : {proto::EVENT_STORAGE, proto::EVENT_VALUE_RETAIN, proto::EVENT_VALUE_DROP, proto::EVENT_VALUE_USE,
                         proto::EVENT_VALUE_REMAKE, proto::EVENT_VALUE_OFFLOAD}) {
    for (const std::int64_t number :
         {std::int64_t{proto::BFLOAT16 + 1}, std::int64_t{8} << 8, std::int64_t{8} << 8 | (proto::FLOAT32 + 1)}) {
      writer::Event event = test::event(kind, time += 77);
      event.thread = event.heap = 1;
      event.scope = 2;
      event.name = 5;
      event.address = 0x7f0000000000 + 0x200 * static_cast<std::uint64_t>(kind);
      event.size = 512;
      event.memory_class = proto::CLASS_ACTIVATION;
      event.number = number;
      writer.append(event);
    }
  }
}

// What format 1.3 says of operators: the number of the next node before blocks and at the ends of a scope, in two threads that count for
// themselves.
void append_sequences(writer::TraceWriter& writer) {
  std::uint64_t time = 2'000'000;
  for (const std::uint32_t thread : {1U, 2U}) {
    const auto say = [&](int kind, std::int64_t number) {
      writer::Event event = test::event(kind, time += 55);
      event.thread = thread;
      event.phase = proto::PHASE_FORWARD;
      event.scope = 3;
      event.number = number;
      writer.append(event);
    };
    const auto allocate = [&](std::uint64_t address) {
      writer::Event event = test::allocation(time += 5, address, 1024, 2);
      event.thread = thread;
      event.scope = 3;
      writer.append(event);
    };
    const std::uint64_t place = 0x7e0000000000 + 0x100000 * std::uint64_t{thread};
    say(proto::EVENT_SEQUENCE, thread == 1 ? 40 : 0);
    say(proto::EVENT_SCOPE_BEGIN, 0);
    say(proto::EVENT_SEQUENCE, thread == 1 ? 41 : 1);
    allocate(place);
    allocate(place + 0x1000);
    say(proto::EVENT_SEQUENCE, thread == 1 ? 43 : std::int64_t{1} << 40);
    say(proto::EVENT_SCOPE_END, 0);
  }
}

// What format 1.4 says of nodes: where the function has returned, before the first block after it.
void append_returns(writer::TraceWriter& writer) {
  std::uint64_t time = 2'500'000;
  std::uint64_t place = 0x7d0000000000;
  const auto say = [&](writer::Event event) {
    event.time_ns = time += 33;
    event.thread = 1;
    event.phase = proto::PHASE_BACKWARD;
    writer.append(event);
  };
  const auto node = [&](int kind, std::int64_t number) {
    writer::Event event = test::event(kind, 0);
    event.name = 5;
    event.number = number;
    say(event);
  };
  for (const std::int64_t number : {41, 40}) {
    node(proto::EVENT_NODE_BEGIN, number);
    say(test::allocation(0, place += 0x1000, 2048, 2));
    if (number == 41) say(test::event(proto::EVENT_NODE_RETURNED, 0));
    say(test::allocation(0, place += 0x1000, 2048, 2));
    node(proto::EVENT_NODE_END, number);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: make_capture FILE\n", stderr);
    return 2;
  }
  std::string error;
  writer::HeaderInfo info = test::header_info();
  info.rank = 1;
  info.world_size = 2;
  info.local_rank = 1;
  auto writer = writer::TraceWriter::create(argv[1], info, &error);
  if (writer == nullptr) {
    std::fprintf(stderr, "%s\n", error.c_str());
    return 1;
  }
  define(*writer);
  append_kinds(*writer);
  append_facts(*writer);
  append_sequences(*writer);
  append_returns(*writer);
  writer->calibrate(5000, 7000);
  writer->lose(proto::Loss::RING_FULL, 17);
  writer->flush();
  // Enough of a pattern that columns are compressed, and frees that reach back over a chunk's border.
  test::TrainPattern pattern;
  for (int i = 0; i < 300; ++i) {
    writer::Event event = pattern.next();
    event.scope %= 5;
    writer->append(event);
    if (i == 150) writer->flush();
  }
  writer->append(test::allocation(1, 0x1000, 64, 1));
  writer->append(test::allocation(1, 0x1000, 32, 1));
  writer->append(test::release(1, 0x9000, 1));
  writer->calibrate(905000, 307000);
  return writer->finish("exit") ? 0 : 1;
}
