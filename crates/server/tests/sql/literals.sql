select 'foo'{nl}'bar';
select 'foo' 'bar';
select 'foo'   {nl}  {nl} 'bar';
select 'foo' -- c{nl} 'bar';
select 'foo'{nl}E'bar';
select 'a' || 'b'{nl}'c';
select 'a'{nl}'b'{nl}'c';
select -0.0;
select -(0.0);
select - 0;
select 12345678901234567890123456789012345678901234567890; --refused
select 1.23456789012345678901234567890123456789; --refused
select 1.5::numeric + 12345678901234567890123456789; --refused
select 1e300::float8;
select -1e300::float8;
select 1e-320::float8;
select + 1;
select 'a'::text is not false;
select 123abc;
select 1_2_3;
select 1_000;
select 0.a;
select 0.0e;
select 1e;
select 1e+;
select 1.5e-;
select 0x1F;
select 0b1;
select 0o7;
select 1.e5;
select .5;
select 5.;
select 1..2;
select 1a;
select 1L;
select 1 a;
select 1.5.5;
select $1abc;
select -32768::int2;
select -2147483648::int4;
select -9223372036854775808;
select - 9223372036854775808;
select -9223372036854775809;
select 9223372036854775808;
select -2147483648;
select 2 - -1;
select 2 -1;
select 2-1;
select 1e20::float8::numeric;
select 1e-20::float8::numeric;
select 0.1::float8::numeric;
select 123456789.123456789::float8::numeric;
select 1e30::float8::numeric; --refused
select 1.10 = 1.1;
select 1e2;
select 1e-2;
select 1.50e1;
select 0e5;
select 00012;
select 00.10;
select E'\xC3\xA9'; --refused
select E'it''s \303\251'; --refused
select e'\uD83D\uDE00'; --refused
select E'\u00e9', E'a\'b''c';
select E'abc
select E'it''s \xC3
