-- Takes or renews a lock.
-- KEYS  1 lock
-- ARGV  1 epoch, not looked at · 2 token · 3 lifetime in milliseconds
-- Answers 1 when it is ours.
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[2] then
  -- No lock is taken for longer: this one was, by a clock that is ahead of this server's, which has taken over since.
  if redis.call('PTTL', KEYS[1]) > tonumber(ARGV[3]) then redis.call('PEXPIRE', KEYS[1], ARGV[3]) end
  return 0
end
-- At maxmemory a script may grow once it has written what cannot: this first one changes nothing.
redis.call('PERSIST', KEYS[1])
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1
