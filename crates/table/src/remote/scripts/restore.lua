-- Puts the catalogue back that a server remembers, where it was lost.
-- KEYS  1 tier
-- ARGV  1 epoch, not looked at · 2 the last id · then field, entry of each
for i = 3, #ARGV, 2 do redis.call('HSETNX', KEYS[1], ARGV[i], ARGV[i + 1]) end
if tonumber(redis.call('HGET', KEYS[1], 'last') or '0') < tonumber(ARGV[2]) then
  redis.call('HSET', KEYS[1], 'last', ARGV[2])
end
return 1
