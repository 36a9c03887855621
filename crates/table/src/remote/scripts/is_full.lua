-- Says whether a shard takes no more rows.
-- KEYS  1 meta
-- ARGV  1 epoch · 2 "1" or "0"
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then
  return redis.error_reply('EPOCH another server, or another history of it')
end
-- At maxmemory a script may grow once it has written what cannot: this first one changes nothing.
redis.call('HDEL', KEYS[1], '')
if ARGV[2] == '1' then redis.call('HSET', KEYS[1], 'full', '1') else redis.call('HDEL', KEYS[1], 'full') end
return 1
