// What a rank of the same host says about memory that is to be mapped: one that has joined the job.
//
// Beyond not crashing: nothing is imported of which a part is missing or too long, whatever was
// mapped is gone when the line is, and no descriptor is left.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <iterator>
#include <memory>

#include "fuzz.hpp"
#include "gpu_world/host_device.hpp"
#include "runtime/gpu/host/regions.hpp"
#include "transport/bootstrap/local_socket.hpp"

namespace tutti::fuzz {
namespace {

using namespace tutti::runtime::gpu;

constexpr std::size_t kPage = 4096;

// Rank 0, and what rank 1 would be.
class Talk {
 public:
  Talk()
      : device_({1, 64, 2, true}),
        memory_(*RankMemory::make(device_, {2, 1, 2, 64, 64}, 0, kSharedRegionCount)),
        regions_(*Regions::make({})),
        parts_(device_.allocate_parts({kPage, kPage})),
        file_(::memfd_create("part", MFD_CLOEXEC)) {
    TUTTI_ASSERT(::ftruncate(file_.number(), kPage) == 0, "a file in memory is made");
    const Status met =
        regions_->connect(memory_, 0, {{1, *make_region_door(), false}}, [] { return true; });
    TUTTI_ASSERT(met.ok(), "nobody else has to come");
    line_.take(*transport::connect_to_name(regions_->door().name.data()));
    RegionNews hello;
    hello.from = 1;
    hello.secret = regions_->door().secret;
    line_.say(hello);
    static_cast<void>(regions_->add(parts_, 2 * kPage));
  }

  void say(const RegionNews& news, bool with_file) {
    base::Descriptor descriptor;
    if (with_file) descriptor = base::Descriptor(::fcntl(file_.number(), F_DUPFD_CLOEXEC, 0));
    line_.say(news, std::move(descriptor));
    answers_ += line_.hear() ? 1 : 0;
  }

  // All of it goes, at once or when its thread sees that nobody is there.
  void end() {
    line_ = RegionLine();
    TUTTI_ASSERT(regions_->remove_all([] { return false; }).ok(), "who is gone holds nothing");
    TUTTI_ASSERT(device_.shared_parts() == 0, "nothing is kept for who is gone");
    regions_.reset();
    TUTTI_ASSERT(device_.imports() == 0, "what was mapped is let go");
    device_.deallocate_parts(parts_);
  }

 private:
  HostDevice device_;
  RankMemory memory_;
  std::unique_ptr<Regions> regions_;
  std::byte* const parts_;
  const base::Descriptor file_;
  RegionLine line_;
  int answers_ = 0;
};

// Near what could be right.
RegionNews news_from(Decisions& decisions) {
  const auto below = [&](unsigned bound) {
    return std::uint32_t{decisions.number<std::uint8_t>()} % bound;
  };
  RegionNews news;
  news.from = static_cast<Rank>(below(3));
  news.word = static_cast<RegionWord>(below(13));
  news.part = below(4);
  news.region = kRegionCount + below(3);
  news.generation = below(3);
  news.kind = static_cast<PartKind>(below(4));
  constexpr std::uint64_t kBytes[] = {
      0, 1, kPage, 2 * kPage, 3 * kPage, kRegionBytesMax + 1, ~std::uint64_t{0}};
  news.bytes = kBytes[below(std::size(kBytes))];
  switch (below(16)) {
    case 0:
      news.part = ~std::uint32_t{0};
      break;
    case 1:
      news.region = below(256) << 16 | below(256);
      break;
    case 2:
      news.magic = below(256);
      break;
    default:
      break;
  }
  return news;
}

// Whatever it may be.
RegionNews raw_news(Decisions& decisions) {
  RegionNews news;
  const std::string_view bytes = decisions.bytes(sizeof news);
  if (!bytes.empty()) std::memcpy(static_cast<void*>(&news), bytes.data(), bytes.size());
  return news;
}

Script said(Script script, RegionWord word, int part, PartKind kind, int bytes, bool with_file) {
  script.byte(with_file ? 1 : 0).byte(1).byte(static_cast<int>(word)).byte(part).byte(0).byte(1);
  return script.byte(static_cast<int>(kind)).byte(bytes).byte(9);
}

}  // namespace

std::size_t input_bytes_max() { return 2048; }

void run(std::string_view input) {
  Decisions decisions(input);
  Talk talk;
  while (!decisions.done()) {
    const auto act = decisions.number<std::uint8_t>();
    const RegionNews news = act % 8 == 7 ? raw_news(decisions) : news_from(decisions);
    talk.say(news, act % 2 == 1);
  }
  talk.end();
}

std::vector<std::string> seeds() {
  constexpr int kOne = 2;  // a page
  constexpr int kTwo = 3;
  const auto none = PartKind::none;
  const auto file = PartKind::descriptor;
  Script given = said(Script(), RegionWord::open, 2, none, kTwo, false);
  given = said(given, RegionWord::part, 0, file, kOne, true);
  given = said(given, RegionWord::part, 1, file, kOne, true);
  const Script closed = said(given, RegionWord::close, 0, none, 0, false);
  Script asked = said(Script(), RegionWord::want, 0, none, 0, false);
  asked = said(asked, RegionWord::want, 1, none, 0, false);
  asked = said(asked, RegionWord::opened, 0, none, 0, false);
  const Script cut = said(said(Script(), RegionWord::open, 3, none, kTwo, false), RegionWord::part,
                          0, file, kOne, true);
  return {std::string(given), std::string(closed), std::string(asked), std::string(cut)};
}

}  // namespace tutti::fuzz
