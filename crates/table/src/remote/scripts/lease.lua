-- Takes or renews the lease of a shard's queue.
-- KEYS  1 meta · 2 lease
-- ARGV  1 epoch · 2 token · 3 lifetime in milliseconds
-- Answers { 1, next - 1, drained } when it is held, { 0, token of the holder, milliseconds left } otherwise.
local meta = redis.call('HMGET', KEYS[1], 'epoch', 'n', 'drained')
if meta[1] ~= ARGV[1] then return redis.error_reply('EPOCH another server, or another history of it') end
local holder = redis.call('GET', KEYS[2])
if holder and holder ~= ARGV[2] then
  local left = redis.call('PTTL', KEYS[2])
  -- No lease is taken for longer: this one was, by a clock that is ahead of this server's, which has taken over since.
  if left > tonumber(ARGV[3]) then
    left = tonumber(ARGV[3])
    redis.call('PEXPIRE', KEYS[2], ARGV[3])
  end
  return { 0, holder, left }
end
-- At maxmemory a script may grow once it has written what cannot: this first one changes nothing.
redis.call('HDEL', KEYS[1], '')
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
return { 1, meta[2] or '0', meta[3] or '0' }
