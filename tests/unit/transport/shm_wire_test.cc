// shm_wire_test.cc: addresses, proofs, messages and files between processes, and what of it is
// refused.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <random>

#include "transport/shm/doorman.hpp"
#include "transport/shm/wire.hpp"

namespace tutti::transport::shm {
namespace {

TEST(AddressTest, RoundTrips) {
  const Address address = make_address();
  const Result<Address> parsed = Address::parse(address.to_text());
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
  EXPECT_EQ(parsed->host, address.host);
  EXPECT_EQ(parsed->token, address.token);
  EXPECT_EQ(parsed->pid, getpid());
  EXPECT_NE(make_address().token, address.token);
  EXPECT_EQ(make_address().host, address.host);
  EXPECT_EQ(parsed->processes, address.processes);
}

TEST(AddressTest, RefusesNonsense) {
  const std::string token(32, 'a');
  EXPECT_TRUE(Address::parse("shm3 host " + token + " 12 4 7f3a").ok());
  for (const std::string& text :
       {std::string(), std::string("shm3"), "shm2 host " + token + " 12 4 7f3a",
        "shm3  " + token + " 12 4 7f3a", "shm3 host " + token, "shm3 host " + token + " 12",
        "shm3 host " + token + " 12 4", "shm3 host " + token + " 12 4 x",
        "shm3 host " + token + " 12 4 10000000000000000", "shm3 host " + token + " x 4 7f3a",
        "shm3 host " + token + " 12 4 7f3a more", "shm3 host " + token + "a 12 4 7f3a",
        "shm3 host " + token.substr(1) + "/ 12 4 7f3a",
        "shm3 " + std::string(1000, 'h') + " " + token + " 12 4 7f3a",
        "shm3 host " + token + " 99999999999999999999 4 7f3a"})
    EXPECT_EQ(Address::parse(text).status().code(), StatusCode::corrupt_data) << text;
}

TEST(ProofTest, CoversEverythingThatIsSaid) {
  Message message{.kind = MessageKind::hello, .from = 3, .context = 9};
  message.proof = prove(message, "listener", "secret");
  EXPECT_TRUE(proven(message, "listener", "secret"));
  EXPECT_FALSE(proven(message, "another", "secret"));
  EXPECT_FALSE(proven(message, "listener", "guess"));
  EXPECT_FALSE(proven(message, "listener", ""));
  Message changed = message;
  changed.from = 4;
  EXPECT_FALSE(proven(changed, "listener", "secret"));
  changed = message;
  changed.context = 8;
  EXPECT_FALSE(proven(changed, "listener", "secret"));
  changed = message;
  changed.kind = MessageKind::ask_board;
  EXPECT_FALSE(proven(changed, "listener", "secret"));
  changed = message;
  changed.proof[31] ^= 1;
  EXPECT_FALSE(proven(changed, "listener", "secret"));
}

#if defined(TUTTI_SANITIZED)
constexpr int kAttacks = 5'000;
#else
constexpr int kAttacks = 100'000;
#endif

std::vector<Address> four_addresses(char token) {
  std::vector<Address> made;
  for (int rank = 0; rank < 4; ++rank)
    made.push_back({.host = "host",
                    .token = std::string(32, static_cast<char>(token + rank)),
                    .pid = 100 + rank,
                    .processes = "4"});
  return made;
}

Message hello_to(const std::vector<Address>& addresses, Rank from, Rank to,
                 const std::string& secret = "s3cret", std::uint64_t context = 9) {
  Message made{.kind = MessageKind::hello, .from = from, .context = context, .to = to};
  made.proof = prove(made, addresses[static_cast<std::size_t>(to)].token, secret);
  return made;
}

TEST(DoormanTest, NoFalseMessageComesInAndAGenuineOneOnlyOnce) {
  std::mt19937 random(23);
  const std::vector<Address> addresses = four_addresses('a');
  Doorman doorman(2, 9, "s3cret", addresses);
  const Message genuine = hello_to(addresses, 1, 2);
  ASSERT_TRUE(doorman.admits(genuine, 101));
  int accepted = 0;
  for (int i = 0; i < kAttacks; ++i) {
    Message message = hello_to(addresses, 3, 2);
    pid_t process = 103;
    switch (i % 9) {
      case 0:  // replayed by the process itself
        message = genuine;
        process = 101;
        break;
      case 1:  // replayed by another one, before the genuine one came
        process = 104;
        break;
      case 2:  // sent back to where it came from, or meant for another rank
        message = hello_to(addresses, 2, static_cast<Rank>(random() % 4));
        process = 102;
        break;
      case 3:
        message = hello_to(addresses, 3, random() % 2 == 0 ? 0 : 1);
        break;
      case 4:  // of another communicator, or an earlier one
        message = hello_to(random() % 2 == 0 ? four_addresses('k') : addresses, 3, 2, "s3cret", 8);
        break;
      case 5:
        message = hello_to(four_addresses('k'), 3, 2);
        break;
      case 6:  // forged, also as if there were no secret
        message = hello_to(addresses, 3, 2, random() % 2 == 0 ? "guess" : "");
        break;
      case 7:  // changed
        reinterpret_cast<unsigned char*>(&message)[random() % sizeof message] ^=
            static_cast<unsigned char>(1 << random() % 8);
        break;
      default:  // another kind, with and without its proof
        message.kind = static_cast<MessageKind>(random() % 8);
        if (message.kind == MessageKind::hello) message.kind = MessageKind::board;
        if (random() % 2 == 0) message.proof = prove(message, addresses[2].token, "s3cret");
    }
    if (doorman.admits(message, process)) ++accepted;
  }
  std::printf("%d false first messages, %d accepted\n", kAttacks, accepted);
  EXPECT_EQ(accepted, 0);
  EXPECT_TRUE(doorman.admits(hello_to(addresses, 3, 2), 103));
}

TEST(DoormanTest, ProcessesOfOtherNamespacesCannotBeCompared) {
  std::vector<Address> addresses = four_addresses('a');
  addresses[1].processes = "5";
  Doorman doorman(2, 9, "s3cret", addresses);
  EXPECT_TRUE(doorman.admits(hello_to(addresses, 1, 2), 0));
  EXPECT_FALSE(doorman.admits(hello_to(addresses, 3, 2), 0));
}

class SocketTest : public testing::Test {
 protected:
  void SetUp() override {
    token_ = make_address().token;
    Result<Descriptor> listener = listen_at(token_);
    ASSERT_TRUE(listener.ok()) << listener.status().to_string();
    listener_ = std::move(listener).value();
    EXPECT_FALSE(accept_from(listener_).open());
    Result<Descriptor> connected = connect_to(token_);
    ASSERT_TRUE(connected.ok()) << connected.status().to_string();
    near_ = std::move(connected).value();
    far_ = accept_from(listener_);
    ASSERT_TRUE(far_.open());
  }

  std::string token_;
  Descriptor listener_;
  Descriptor near_;
  Descriptor far_;
};

TEST_F(SocketTest, CarriesMessagesAndFiles) {
  EXPECT_EQ(receive_message(far_).kind, Received::Kind::nothing);
  Result<Descriptor> file = make_memory_file(4096);
  ASSERT_TRUE(file.ok());
  Result<Mapping> mine = map_file(file->number(), 4096, Pages::when_touched);
  ASSERT_TRUE(mine.ok());
  mine->base()[77] = std::byte{5};
  const Message message{.kind = MessageKind::region, .from = 2, .bytes = 4096, .region = 6};
  ASSERT_TRUE(*send_message(near_, message, file->number()));
  ASSERT_TRUE(*send_message(near_, {.kind = MessageKind::region_gone, .region = 7}));
  const Received first = receive_message(far_);
  ASSERT_EQ(first.kind, Received::Kind::message);
  EXPECT_EQ(first.message.region, 6u);
  Result<Mapping> theirs = map_received(first.file.number(), 4096, Pages::at_once);
  ASSERT_TRUE(theirs.ok()) << theirs.status().to_string();
  EXPECT_EQ(theirs->base()[77], std::byte{5});
  const Received second = receive_message(far_);
  ASSERT_EQ(second.kind, Received::Kind::message);
  EXPECT_EQ(second.message.region, 7u);
  EXPECT_FALSE(second.file.open());
  near_.close();
  EXPECT_EQ(receive_message(far_).kind, Received::Kind::hang_up);
}

TEST_F(SocketTest, BothEndsSeeWhichProcessIsAtTheOther) {
  const Address here = make_address();
  EXPECT_TRUE(is_process(here, here, process_number_behind(near_)));
  EXPECT_TRUE(is_process(here, here, process_number_behind(far_)));
  EXPECT_FALSE(is_process(here, here, getppid()));
}

TEST_F(SocketTest, NonsenseIsRecognised) {
  const Message good{.kind = MessageKind::hello};
  ASSERT_GT(send(near_.number(), &good, sizeof good - 1, 0), 0);
  EXPECT_EQ(receive_message(far_).kind, Received::Kind::nonsense);
  const std::string longer(sizeof good + 1, 'x');
  ASSERT_GT(send(near_.number(), longer.data(), longer.size(), 0), 0);
  EXPECT_EQ(receive_message(far_).kind, Received::Kind::nonsense);
  for (const Message& bad : {Message{.magic = 1}, Message{.kind = static_cast<MessageKind>(0)},
                             Message{.kind = static_cast<MessageKind>(8)}, Message{.from = -1},
                             Message{.channel = -1}, Message{.to = -1}}) {
    ASSERT_TRUE(*send_message(near_, bad));
    EXPECT_EQ(receive_message(far_).kind, Received::Kind::nonsense);
  }
}

TEST_F(SocketTest, AFullSocketSaysSo) {
  int sent = 0;
  while (true) {
    const Result<bool> one = send_message(near_, {.kind = MessageKind::region_gone, .region = 1});
    ASSERT_TRUE(one.ok()) << one.status().to_string();
    if (!*one) break;
    ASSERT_LT(++sent, 1'000'000);
  }
  EXPECT_EQ(receive_message(far_).kind, Received::Kind::message);
}

TEST(ConnectTest, NobodyThereIsALostPeer) {
  EXPECT_EQ(connect_to(make_address().token).status().code(), StatusCode::peer_lost);
}

TEST(FileTest, OnlySealedMemoryOfEnoughBytesIsMapped) {
  Result<Descriptor> file = make_memory_file(8192);
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE(map_received(file->number(), 8192, Pages::when_touched).ok());
  EXPECT_EQ(map_received(file->number(), 8193, Pages::when_touched).status().code(),
            StatusCode::corrupt_data);
  EXPECT_EQ(map_received(file->number(), 0, Pages::when_touched).status().code(),
            StatusCode::corrupt_data);
  EXPECT_EQ(map_received(0, 100, Pages::when_touched).status().code(), StatusCode::corrupt_data);
  EXPECT_NE(ftruncate(file->number(), 100), 0) << "the size is sealed";
}

}  // namespace
}  // namespace tutti::transport::shm
