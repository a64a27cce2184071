// shm_wire_test.cc: addresses, proofs, messages and files between processes, and what of it is
// refused.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

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
}

TEST(AddressTest, RefusesNonsense) {
  const std::string token(32, 'a');
  EXPECT_TRUE(Address::parse("shm1 host " + token + " 12").ok());
  for (const std::string& text :
       {std::string(), std::string("shm1"), "shm2 host " + token + " 12", "shm1  " + token + " 12",
        "shm1 host " + token, "shm1 host " + token + " x", "shm1 host " + token + " 12 more",
        "shm1 host " + token + "a 12", "shm1 host " + token.substr(1) + "/ 12",
        "shm1 " + std::string(1000, 'h') + " " + token + " 12",
        "shm1 host " + token + " 99999999999999999999"})
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

TEST_F(SocketTest, NonsenseIsRecognised) {
  const Message good{.kind = MessageKind::hello};
  ASSERT_GT(send(near_.number(), &good, sizeof good - 1, 0), 0);
  EXPECT_EQ(receive_message(far_).kind, Received::Kind::nonsense);
  const std::string longer(sizeof good + 1, 'x');
  ASSERT_GT(send(near_.number(), longer.data(), longer.size(), 0), 0);
  EXPECT_EQ(receive_message(far_).kind, Received::Kind::nonsense);
  for (const Message& bad : {Message{.magic = 1}, Message{.kind = static_cast<MessageKind>(0)},
                             Message{.kind = static_cast<MessageKind>(7)}, Message{.from = -1},
                             Message{.channel = -1}}) {
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
