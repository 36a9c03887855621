-- Leaves stubs of rows that are drained and still as they were seen.
-- KEYS  1 meta · 2 rows
-- ARGV  1 epoch · then key, head that was seen, stub of each
-- Answers how many.
local meta = redis.call('HMGET', KEYS[1], 'epoch', 'drained')
if meta[1] ~= ARGV[1] then return redis.error_reply('EPOCH another server, or another history of it') end
local drained = tonumber(meta[2] or '0')
local evicted = 0
-- At maxmemory a script may grow once it has written what cannot: this first one changes nothing.
redis.call('HDEL', KEYS[1], '')
for i = 2, #ARGV, 3 do
  local found = redis.call('HGET', KEYS[2], ARGV[i])
  if found and string.sub(found, 1, 8) == ARGV[i + 1] then
    local _, version = struct.unpack('<BI7', found)
    if version <= drained then
      redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 2])
      evicted = evicted + 1
    end
  end
end
return evicted
