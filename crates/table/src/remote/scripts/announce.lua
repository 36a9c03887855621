-- Makes it known under which generations other shards' reservations count, and says on which of them rows of this one rely.
-- KEYS  1 meta
-- ARGV  1 epoch, not looked at · 2 fields that are read · the fields · then field, generation of each
-- Answers the values of the fields.
local fields = tonumber(ARGV[2])
local function number(generation) return tonumber(string.match(generation or '', '^(%d+):') or '0') end
-- Two servers may repair at the same time: what one has announced is never replaced by something older.
for i = 3 + fields, #ARGV, 2 do
  local known, new = number(redis.call('HGET', KEYS[1], ARGV[i]) or ''), number(ARGV[i + 1])
  if new > known or (new == 0 and known == 0) then redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
end
return redis.call('HMGET', KEYS[1], unpack(ARGV, 3, 2 + fields))
