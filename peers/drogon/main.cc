// GET /simple and PATCH /update-something/{id}/{name} on Drogon, JSON by RapidJSON: the two routes that ask no store.

#include <cctype>
#include <charconv>
#include <cstdlib>
#include <ctime>
#include <string>
#include <string_view>
#include <thread>

#include <drogon/drogon.h>
#include <rapidjson/document.h>
#include <rapidjson/stringbuffer.h>
#include <rapidjson/writer.h>
#include <sys/time.h>

using namespace drogon;
using Reply = std::function<void(const HttpResponsePtr &)>;
using Writer = rapidjson::Writer<rapidjson::StringBuffer>;

namespace {

constexpr int events = 100;
// As long as what Forebay's example answers, so that both send the same number of bytes.
const std::string sentence =
    "This event was recorded by the update endpoint while it was working on one request under full load.";
const std::string metadata = sentence + " " + sentence;

std::string environment(const char *name, const char *fallback) {
  const char *value = std::getenv(name);
  return value && *value ? value : fallback;
}

void answer(const Reply &reply, std::string_view body) {
  auto response = HttpResponse::newHttpResponse();
  response->setContentTypeCode(CT_APPLICATION_JSON);
  response->setBody(std::string(body));
  reply(response);
}

/// 400 as RFC 9457 says it.
void refuse(const Reply &reply, const std::string &detail) {
  auto response = HttpResponse::newHttpResponse();
  response->setStatusCode(k400BadRequest);
  response->setContentTypeString("application/problem+json");
  response->setBody(R"({"type":"about:blank","title":"Bad Request","status":400,"detail":")" + detail + R"("})");
  reply(response);
}

void string(Writer &writer, std::string_view text) {
  writer.String(text.data(), static_cast<rapidjson::SizeType>(text.size()));
}

void member(Writer &writer, std::string_view key, std::string_view value) {
  writer.Key(key.data(), static_cast<rapidjson::SizeType>(key.size()));
  string(writer, value);
}

/// Now, ISO 8601 with milliseconds, UTC.
std::string now() {
  timeval time{};
  gettimeofday(&time, nullptr);
  tm parts{};
  gmtime_r(&time.tv_sec, &parts);
  char text[40];
  const size_t length = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
  std::snprintf(text + length, sizeof text - length, ".%03ldZ", static_cast<long>(time.tv_usec / 1000));
  return text;
}

size_t characters(std::string_view text) {
  size_t count = 0;
  for (const char byte : text) count += (byte & 0xC0) != 0x80;
  return count;
}

/// foo1 to foo10 joined, upper-cased (ASCII), each followed by ". "; the name of one that is no scalar is told.
bool totalFoo(const rapidjson::Document &body, std::string &total, std::string &wrong) {
  for (int i = 1; i <= 10; i++) {
    const std::string name = "foo" + std::to_string(i);
    const auto found = body.FindMember(name.c_str());
    if (found == body.MemberEnd() || found->value.IsNull()) continue;
    if (found->value.IsObject() || found->value.IsArray()) {
      wrong = name;
      return false;
    }
    if (found->value.IsString()) {
      total.append(found->value.GetString(), found->value.GetStringLength());
    } else {
      rapidjson::StringBuffer text;
      Writer writer(text);
      found->value.Accept(writer);
      total.append(text.GetString(), text.GetSize());
    }
    total += ". ";
  }
  for (char &byte : total) byte = static_cast<char>(std::toupper(static_cast<unsigned char>(byte)));
  return true;
}

void updateSomething(const HttpRequestPtr &request, const Reply &reply, const std::string &idText, const std::string &name) {
  long long id = 0;
  const auto [end, error] = std::from_chars(idText.data(), idText.data() + idText.size(), id);
  if (error != std::errc() || end != idText.data() + idText.size()) return refuse(reply, "id: must be a number");
  if (characters(name) < 3) return refuse(reply, "name: must have at least 3 characters");
  rapidjson::Document body;
  const auto bytes = request->body();
  body.Parse(bytes.data(), bytes.size());
  if (body.HasParseError() || !body.IsObject()) return refuse(reply, "the body must be a JSON object");
  std::string total, wrong;
  if (!totalFoo(body, total, wrong)) return refuse(reply, wrong + ": must be a string, a number or a boolean");

  thread_local rapidjson::StringBuffer buffer;
  buffer.Clear();
  Writer writer(buffer);
  writer.StartObject();
  writer.Key("id");
  writer.Int64(id);
  member(writer, "name", name);
  for (const char *value : {"value1", "value2"}) {
    if (const auto text = request->getOptionalParameter<std::string>(value)) member(writer, value, *text);
  }
  member(writer, "total_foo", total);
  writer.Key("history");
  writer.StartArray();
  const std::string timestamp = now(), action = "Action performed by " + name;
  for (int i = 0; i < events; i++) {
    writer.StartObject();
    writer.Key("event_id");
    writer.Int64(id + i);
    member(writer, "timestamp", timestamp);
    member(writer, "action", action);
    member(writer, "metadata", metadata);
    member(writer, "status", i % 2 == 0 ? "success" : "pending");
    writer.EndObject();
  }
  writer.EndArray();
  writer.EndObject();
  answer(reply, {buffer.GetString(), buffer.GetSize()});
}

}  // namespace

int main() {
  app().registerHandler(
      "/simple",
      [](const HttpRequestPtr &, Reply &&reply) { answer(reply, R"({"message":"hi"})"); }, {Get});
  app().registerHandler(
      "/update-something/{id}/{name}",
      [](const HttpRequestPtr &request, Reply &&reply, const std::string &id, const std::string &name) {
        updateSomething(request, reply, id, name);
      },
      {Patch});
  const auto workers = std::atoi(environment("WORKERS", "0").c_str());
  app()
      .setThreadNum(workers > 0 ? workers : std::thread::hardware_concurrency())
      .addListener(environment("HOST", "127.0.0.1"), static_cast<uint16_t>(std::atoi(environment("PORT", "3000").c_str())))
      .run();
}
