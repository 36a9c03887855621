-- Gives a table the next id.
-- KEYS  1 tier
-- ARGV  1 epoch, not looked at · 2 the last id that was seen · 3 field · 4 entry
-- Answers 1, or 0 when there are newer ids.
if (redis.call('HGET', KEYS[1], 'last') or '0') ~= ARGV[2] then return 0 end
redis.call('HINCRBY', KEYS[1], 'last', 1)
redis.call('HSET', KEYS[1], ARGV[3], ARGV[4])
return 1
