-- Stores an entry, makes room for it and gives the lease up. A server that is full refuses the first command, and all of it.
-- KEYS  1 entry · 2 lease · 3 order · 4 bytes
-- ARGV  1 epoch, not looked at · 2 lease · 3 value · 4 lifetime in milliseconds · 5 the bound of the place in bytes
--       6 what stands before the key in an entry's name · 7 the key
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[4])
if redis.call('GET', KEYS[2]) == ARGV[2] then redis.call('DEL', KEYS[2]) end
local key, bytes = ARGV[7], #ARGV[3] + 2 * #ARGV[7] + #ARGV[6] + 256
local before = tonumber(redis.call('HGET', KEYS[4], key) or '0')
local total = redis.call('HINCRBY', KEYS[4], '', bytes - before)
redis.call('HSET', KEYS[4], key, bytes)
redis.call('ZADD', KEYS[3], now + ARGV[4], key)
local function drop(other)
  redis.call('DEL', ARGV[6] .. other)
  redis.call('ZREM', KEYS[3], other)
  total = redis.call('HINCRBY', KEYS[4], '', -tonumber(redis.call('HGET', KEYS[4], other) or '0'))
  redis.call('HDEL', KEYS[4], other)
end
for _, other in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now, 'LIMIT', 0, 100)) do drop(other) end
while total > tonumber(ARGV[5]) do
  local first = redis.call('ZRANGE', KEYS[3], 0, 0)[1]
  if not first then break end
  drop(first)
end
-- What is kept of a place goes with its last entry.
if redis.call('PTTL', KEYS[3]) < tonumber(ARGV[4]) then
  redis.call('PEXPIRE', KEYS[3], ARGV[4])
  redis.call('PEXPIRE', KEYS[4], ARGV[4])
end
return 1
